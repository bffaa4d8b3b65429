// What `examine_pages.py` and `test_browser.py` ask of a page, as functions of `examine`. axe-core is loaded beside it.
window.examine = (() => {
  const shown = (found) => [...document.querySelectorAll(found)].filter((element) => element.offsetParent);
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const said = (element) => element.textContent.trim().slice(0, 60);

  const open = () => document.querySelectorAll("details").forEach((fold) => (fold.open = true));
  const palette = (name) => document.body.setAttribute("data-md-color-scheme", name);

  /** By how much the page is wider than the screen, and the first element that is. */
  const wider = () => {
    const by = document.documentElement.scrollWidth - innerWidth;
    if (by <= 0) return [];
    const widest = shown("article *").find((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre"));
    return [`${by} pixels wider than the screen: ${widest?.outerHTML.slice(0, 100)}`];
  };

  /** Tables of which a column is not on the screen. */
  const cutTables = () => {
    const beside = (cell) => cell.offsetParent && cell.getBoundingClientRect().right > innerWidth + 1;
    return shown(".scroll:has(> table)")
      .filter((table) => table.scrollWidth > table.clientWidth + 4 || [...table.querySelectorAll("td")].some(beside))
      .map((table) => `${table.scrollWidth} in ${table.clientWidth}: ${said(table)}`);
  };

  /** Texts in letters of fewer pixels. */
  const smallTexts = (smallest) =>
    shown("article *")
      .filter((element) => hasText(element) && parseFloat(getComputedStyle(element).fontSize) < smallest)
      .map((element) => `${getComputedStyle(element).fontSize} ${said(element)}`);

  /** Each picture of the page: its file, its left and right edge and its width. */
  const pictures = async () => {
    const all = shown("figure img");
    all.forEach((image) => (image.loading = "eager"));
    await Promise.all(all.map((image) => image.decode()));
    return all.map((image) => {
      const box = image.getBoundingClientRect();
      return [new URL(image.currentSrc).pathname.slice(1), box.left, box.right, box.width];
    });
  };

  const found = async (where, options) => {
    const result = await axe.run(where, { resultTypes: ["violations"], selectors: false, iframes: false, ...options });
    return result.violations.map(({ id, impact, nodes }) => [id, impact, nodes.map((node) => node.html.slice(0, 120))]);
  };

  /** axe's rules with these tags, but for some, in all of the page but for some parts. */
  const barriers = (tags, without, parts) =>
    found(
      { include: [["html"]], exclude: parts.map((part) => [part]) },
      { runOnly: { type: "tag", values: tags }, rules: Object.fromEntries(without.map((rule) => [rule, { enabled: false }])) },
    );

  /** What the contrast of an element's text depends on: its colour, whether it is large, and the backgrounds and opacities below it. */
  const colours = (element, below) => {
    const { color, fontSize, fontWeight, textDecorationLine } = getComputedStyle(element);
    const large = parseFloat(fontSize) >= (fontWeight >= 700 ? 18.66 : 24); // as WCAG says
    const link = element.tagName === "A" ? [textDecorationLine, getComputedStyle(element.parentElement).color] : [];
    return [color, large, ...link, layers(element, below)].join("|");
  };
  const layers = (element, below) => {
    if (!element) return "";
    if (!below.has(element)) {
      const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(element);
      const layer = [backgroundColor, backgroundImage, opacity, filter].join();
      below.set(element, layers(element.parentElement, below) + (layer === "rgba(0, 0, 0, 0),none,1,none" ? "" : `/${layer}`));
    }
    return below.get(element);
  };

  /** axe's rules of colour, for one element of each combination that is not among `known`; the new ones are returned, too. */
  const newColours = async (known, rules) => {
    const before = new Set(known);
    const [fresh, below] = [new Map(), new Map()];
    for (const element of shown("body, body *")) {
      if (!hasText(element)) continue;
      const key = colours(element, below);
      if (!before.has(key) && !fresh.has(key)) fresh.set(key, element);
    }
    if (fresh.size === 0) return [[], []];
    fresh.forEach((element) => element.setAttribute("data-new-colours", ""));
    const violations = await found({ include: [["[data-new-colours]"]] }, { runOnly: { type: "rule", values: rules } });
    fresh.forEach((element) => element.removeAttribute("data-new-colours"));
    return [[...fresh.keys()], violations];
  };

  return { open, palette, wider, cutTables, smallTexts, pictures, barriers, newColours };
})();
