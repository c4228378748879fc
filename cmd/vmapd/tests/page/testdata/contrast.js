// Returns the text with the least contrast to its background, by the formula of WCAG 2, and the contrast, unless all
// have at least 4.5, which is enough for level AA.
(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const paint = (...colors) => {
		for (const c of colors) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); }
		return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
	};
	const luminance = rgb => {
		const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const dark = matchMedia("(prefers-color-scheme: dark)").matches;
	let worst = [4.5, "", ""];
	for (const e of document.body.querySelectorAll("*")) {
		if (![...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()) || e.tagName === "SCRIPT") continue;
		const behind = [];
		for (let up = e; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
		const back = [dark ? "#121212" : "#fff", ...behind];
		const [low, high] = [luminance(paint(...back)), luminance(paint(...back, getComputedStyle(e).color))].sort((a, b) => a - b);
		const contrast = (high + 0.05) / (low + 0.05);
		if (contrast < worst[0]) worst = [contrast, e.className, e.textContent];
	}
	return worst[1] + worst[2] === "" ? "enough" : worst.join(" ");
})()
