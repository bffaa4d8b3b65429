// Names for what the theme leaves without one, for screen readers. The theme's script would fetch a list of pages below each other language's
// page; the links of the switch lead there already.
document.querySelectorAll("link[rel=alternate]").forEach((link) => link.remove());
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", document.documentElement.lang === "ko" ? "검색" : "Search");
});
