// Resolves after a frame was drawn and what was queued has run. Page scripts cannot reach this world.
new Promise((resolve) => {
  const later = () => setTimeout(() => resolve(document.readyState === "complete"), 0);
  const late = setTimeout(later, 250); // a tab that is not shown draws no frames
  requestAnimationFrame(() => {
    clearTimeout(late);
    later();
  });
});
