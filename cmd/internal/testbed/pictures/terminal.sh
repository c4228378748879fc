#!/bin/bash
# Draws what a program writes to a terminal, as an SVG: terminal.sh COMMAND <OUTPUT >PICTURE. Colours are those of vmapd.
set -euo pipefail
export LC_ALL=C.UTF-8 # ${#line} counts characters
mapfile -t lines < <(echo "\$ $1"; cat)
mapfile -t plain < <(printf '%s\n' "${lines[@]}" | sed 's/\x1b\[[0-9;]*m//g')
# Each of several spaces is drawn. A colour ends with its line.
mapfile -t drawn < <(printf '%s\n' "${lines[@]}" | sed -e 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&#34;/g' -e "s/'/\\&#39;/g" \
	-e 's/ /\xc2\xa0/g; s/\x1b\[31m/<tspan fill="#ff7b72">/g; s/\x1b\[32m/<tspan fill="#6fce7d">/g' \
	-e 's/\x1b\[33m/<tspan fill="#e5b75c">/g; s|\x1b\[0m|</tspan>|g' \
	-e '/<tspan/{/<\/tspan>/!s/$/<\/tspan>/}; /<tspan/!s/<\/tspan>//')
longest=0
for line in "${plain[@]}"; do longest=$((${#line} > longest ? ${#line} : longest)); done
width=$((32 + longest * 84 / 10)) height=$((32 + 20 * ${#lines[@]})) # a character is 8.4 pixels wide, a line 20 high
cat <<END
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height">
<rect width="$width" height="$height" rx="8" fill="#16191d"/>
<g font-family="monospace" font-size="14" fill="#d6d9de">
END
for i in "${!lines[@]}"; do
	echo "<text x=\"16\" y=\"$((30 + 20 * i))\" textLength=\"$((${#plain[i]} * 84 / 10))\">${drawn[i]}</text>"
done
printf '</g>\n</svg>\n'
