/* Colours of heatmaps, light and dark. Scales are safe for colour-blind eyes: one hue from the page's ground for what is
   never negative, and orange-blue (negative-positive) for the rest. */

const PALETTES = {
  light: {
    positive: ["#ffffff", "#d3e5f4", "#92bfe0", "#4a8dc4", "#1a5c97", "#0a325c"],
    negative: ["#ffffff", "#fde3c8", "#f9b878", "#e7852f", "#b5530d", "#6e2c02"],
    masked: "#e3e6ea",
    missing: "#c9ced6",
    text: "#4a5362",
    faint: "#8a93a1",
    cursor: "#111827",
    grid: "#ffffff",
    mark: "#d9641f",
  },
  dark: {
    positive: ["#161b22", "#17334f", "#1f598d", "#3a8dd2", "#6dbaff", "#a6daff"],
    negative: ["#161b22", "#46280f", "#84460f", "#cb7320", "#ff9a3f", "#ffbe7e"],
    masked: "#2b313a",
    missing: "#444c58",
    text: "#aab4c2",
    faint: "#76818f",
    cursor: "#f3f6fa",
    grid: "#0f1319",
    mark: "#ff9a3f",
  },
};
const darkMode = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function palette() {
  return darkMode.matches && !printing ? PALETTES.dark : PALETTES.light;
}

/** @returns {Channels} */
function channels(hex) {
  const at = (start) => parseInt(hex.slice(start, start + 2), 16);
  return [at(1), at(3), at(5)];
}

/** The colour of a share from 0 to 1 along a list of stops.
    @returns {Channels} */
function blend(stops, share) {
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const from = Math.min(stops.length - 2, Math.floor(place));
  const [a, b] = [channels(stops[from]), channels(stops[from + 1])];
  const at = (i) => Math.round(a[i] + (b[i] - a[i]) * (place - from));
  return [at(0), at(1), at(2)];
}

const COLOURS = new Map();

/** 511 colours, from -1 to 1, as ImageData holds them: red in the lowest byte. */
function colourTable(colours) {
  if (!COLOURS.has(colours)) {
    const table = Uint32Array.from({ length: 511 }, (_, i) => {
      const share = (i - 255) / 255;
      return pixel(blend(share < 0 ? colours.negative : colours.positive, Math.abs(share)));
    });
    COLOURS.set(colours, table);
  }
  return COLOURS.get(colours);
}

function pixel([red, green, blue]) {
  return 0xff000000 + blue * 0x10000 + green * 0x100 + red;
}

function brightness(colour) {
  return 0.299 * (colour & 255) + 0.587 * ((colour >> 8) & 255) + 0.114 * ((colour >> 16) & 255);
}
