// Runs in every document before its own scripts. SEED is an unsigned 32-bit number.
(() => {
  // A document's numbers depend on the seed and its address (FNV-1a), not on earlier documents.
  let state = SEED >>> 0;
  for (const letter of location.href) {
    state = Math.imul(state ^ letter.codePointAt(0), 16777619) >>> 0;
  }
  // Mulberry32.
  const word = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  Math.random = () => word() / 4294967296;
  if (window.crypto) {
    crypto.getRandomValues = (array) => {
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      for (let i = 0; i < bytes.length; i++) bytes[i] = word() & 255;
      return array;
    };
    crypto.randomUUID = () => {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      bytes[6] = (bytes[6] & 15) | 64;
      bytes[8] = (bytes[8] & 63) | 128;
      const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
      return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    };
  }
  // The pages' clock stands still, but it counts the milliseconds of its own setup.
  const begin = Date.now();
  performance.now = () => Date.now() - begin;
  const requestAnimationFrame = window.requestAnimationFrame;
  window.requestAnimationFrame = (call) => requestAnimationFrame(() => call(performance.now()));
  // With the pages' clock, an interval of 0 would never let time advance.
  const setInterval = window.setInterval;
  window.setInterval = (call, delay, ...rest) =>
    setInterval(call, Math.max(1, Number(delay) || 0), ...rest);
})();
