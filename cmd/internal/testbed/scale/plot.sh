#!/bin/bash
# Draws a file of results of scale, of clusters with 10 endpoints of each Service, as an SVG: plot.sh RESULTS >PLOT
set -euo pipefail
results=$1
# data PROXY FIELD prints a data block of gnuplot's: endpoints, seconds.
data() {
	echo "\$${2}_$1 << END"
	jq -r --arg proxy "$1" --arg field "$2" \
		'select(.endpoints == 10 * .services and (.proxy | startswith($proxy)) and .[$field]) | "\(.endpoints) \(.[$field])"' "$results"
	echo END
}
draw="with linespoints linewidth 2 pointtype 7 pointsize 0.6 linecolor"
{
	for field in one ready; do
		data vmapd $field
		data kube $field
	done
	cat <<-END
		set terminal svg size 800,290 font 'sans-serif,12' background 'white'
		set multiplot layout 1,2
		set logscale xy
		set grid linecolor '#dddddd'
		set border 0
		set tics scale 0
		set key left Left reverse
		set xrange [1000:1000000]
		set xlabel 'endpoints in the cluster, 10 of each Service'
		set xtics ('1,000' 1e3, '10,000' 1e4, '100,000' 1e5, '1,000,000' 1e6)
		set ytics ('0.1 ms' 1e-4, '1 ms' 1e-3, '10 ms' 1e-2, '100 ms' 0.1, '1 s' 1, '10 s' 10, '100 s' 100, '1,000 s' 1000)
		set title 'Time until a changed endpoint is in the kernel'
		set yrange [1e-4:1000]
		plot \$one_vmapd title 'vmapd' $draw '#0072b2', \$one_kube title 'kube-proxy, mode nftables' $draw '#d55e00' dashtype 2
		set title 'Time from start until all Services are programmed'
		set yrange [1e-2:1000]
		plot \$ready_vmapd title 'vmapd' $draw '#0072b2', \$ready_kube title 'kube-proxy, mode nftables' $draw '#d55e00' dashtype 2
	END
} | gnuplot
