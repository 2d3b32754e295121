((most) => {
  const text = document.body ? document.body.innerText : "";
  return [text.slice(0, most), text.length];
})(MOST);
