({
  elements: document.getElementsByTagName("*").length,
  scrollY: Math.round(window.scrollY),
  pageHeight: document.documentElement ? document.documentElement.scrollHeight : 0,
});
