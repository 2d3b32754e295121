// Resolves after a frame was drawn and queued tasks have run. Page scripts cannot reach this world.
new Promise((resolve) => {
  const later = () => setTimeout(() => resolve(document.readyState === "complete"), 0);
  const late = setTimeout(later, 250); // a hidden tab draws no frames
  requestAnimationFrame(() => {
    clearTimeout(late);
    later();
  });
});
