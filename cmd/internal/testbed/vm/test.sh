#!/bin/bash
# Tries what vm.sh returns, in machines that it boots: "make test-ipvs" of the bench runs it.
cd "$(dirname "$0")" || exit
bad=0
# want CODE TEXT ARGUMENT... runs vm.sh, which must exit with a code, and print a text.
want() {
	local out code
	out=$(./vm.sh --timeout 2m "${@:3}" 2>&1)
	code=$?
	if [ $code != "$1" ] || [[ $out != *"$2"* ]]; then
		echo "vm.sh ${*:3}: exit code $code, want $1; \"$2\" is to be in the output:"
		echo "$out"
		bad=1
	fi
}
want 7 out --packages dash -- sh -c 'echo out; exit 7'
want 143 '' --packages dash -- sh -c 'kill -TERM $$'
want 0 '' -- modprobe ip_vs_wlc # a module, and what it needs
want 1 'modprobe: ' --without ip_vs -- modprobe ip_vs_rr
want 1 'modprobe: ' -- modprobe teleport
want 125 'leave out module teleport' --without teleport -- modprobe dummy
want 125 'find the command: ' -- teleport
want 124 'time limit reached' --timeout 1s -- modprobe dummy
exit $bad
