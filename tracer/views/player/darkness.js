// Whether what surrounds the player is dark: the notebook's theme, else what the reader prefers.

export function isDarkAround() {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Calls back when that changes; gives a function that ends it.
export function onDarkness(changed) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", changed);
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  return () => {
    media.removeEventListener("change", changed);
    observer.disconnect();
  };
}
