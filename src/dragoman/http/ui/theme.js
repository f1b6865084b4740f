// Light or dark: the system's choice, unless the button was used in this browser.

const root = document.documentElement;

export function restoreTheme() {
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* storage may be forbidden: the system's choice holds */ }
}

export function switchTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it holds until the page is left */ }
}
