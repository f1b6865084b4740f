// Light or dark: the system's choice, unless the button was used in this browser.

const root = document.documentElement;

export function restoreTheme() {
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* storage may be forbidden: the system's choice holds */ }
}

export function switchTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const isDark = (root.dataset.theme ?? system) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it holds until the page is left */ }
}
