// Pictures: files of pixels, and drawings.

import { asText, blobAddress, cut, element, note, size } from "./parts.js";

const SMALL = { width: 200, height: 320 }; // a picture of less is enlarged
export const ROOM = { width: 400, height: 420 };

// Shows a picture that came as the bytes of a file. Where they are none, the original is shown.
export function viewOfFile(name, mediaType, base64, original) {
  const bytes = bytesOf(base64);
  const picture = element("img", { alt: cut(name, 80), decoding: "async" });
  const figure = element("figure", { class: "view-picture" }, picture);
  picture.src = blobAddress(figure, new Blob([bytes], { type: mediaType }));
  const format = mediaType.replace(/^image\//, "").toUpperCase();
  whenLoaded(figure, picture, `${format}, ${size(bytes.length)}`, original);
  return figure;
}

// Shows the picture of a data URL that is no base64.
export function viewOfAddress(name, mediaType, address) {
  const picture = element("img", { alt: cut(name, 80), decoding: "async", src: address });
  const figure = element("figure", { class: "view-picture" }, picture);
  whenLoaded(figure, picture, mediaType.replace(/^image\//, ""), address);
  return figure;
}

// Shows a drawing in SVG. As the source of an <img> it can neither run scripts nor load anything.
export function viewOfSvg(name, text) {
  const picture = element("img", { alt: cut(name, 80), decoding: "async", class: "view-drawing" });
  const figure = element("figure", { class: "view-picture" }, picture);
  // Drawings that stand within HTML need not name their namespace; files of their own must.
  const whole = /<svg[^>]*\sxmlns=/i.test(text.slice(0, 4000))
    ? text
    : text.replace(/<svg(?=[\s>/])/i, '<svg xmlns="http://www.w3.org/2000/svg"');
  picture.src = blobAddress(figure, new Blob([whole.trimStart()], { type: "image/svg+xml" }));
  whenLoaded(figure, picture, "SVG", text);
  return figure;
}

function whenLoaded(figure, picture, kind, original) {
  picture.addEventListener("load", () => {
    const { naturalWidth: width, naturalHeight: height } = picture;
    if (kind === "SVG") return;
    const scale = enlarge(picture, width, height);
    const enlarged = scale > 1 ? `, shown ${scale} times as large` : "";
    figure.append(element("figcaption", {}, `${width} × ${height} px, ${kind}${enlarged}`));
  });
  picture.addEventListener("error", () => {
    const text = element("div", { class: "view-text view-mono" }, cut(asText(original), 2000));
    picture.replaceWith(note(`This is no valid picture (${kind}):`), text);
  });
}

// Shows a small picture as a whole multiple of its size, with its pixels as squares.
export function enlarge(picture, width, height, room = ROOM) {
  if (width >= SMALL.width || height >= SMALL.height) return 1;
  const scale = Math.max(1, Math.floor(Math.min(room.width / width, room.height / height)));
  picture.style.width = `${width * scale}px`;
  picture.style.imageRendering = "pixelated";
  return scale;
}

// Raises DOMException where it is no base64.
export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}
