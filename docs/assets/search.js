// A pasted error message is words and not a query: for the search, quotation marks, `+`, `-` and `:` are operators, and a quoted name that no
// page contains leaves no result. Of more than four words, the search gets those that tell one message from another, and the tag of the page
// of error messages. A Korean word is searched without its particle: the search finds every word that begins with what remains.
(() => {
  const QUERY = 2;
  const COMMON = new Set(
    ("all and any are because been but can cannot could did does for from had has have how into its like may might most must not off only " +
      "other our own should some than that the their them then there these they this was were what when where which while who why will with " +
      "would yet you your").split(" "),
  );

  const PARTICLE = /(?<=[가-힣]{2})(으로|에서|에게|까지|부터|은|는|이|가|을|를|의|에|로|와|과|도|만)(?![가-힣])/gu;

  function words(query) {
    if (/[가-힣]/u.test(query)) return query.replace(PARTICLE, "");
    const all = query.split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
    if (all.length <= 4) return query;
    const telling = all.filter((word) => word.length > 2 && !/^\d/.test(word) && !COMMON.has(word.toLowerCase()));
    return [...(telling.length ? telling : all), "tags:message^3"].join(" ");
  }

  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    const asked = message?.type === QUERY && typeof message.data === "string";
    return post.call(this, asked ? { ...message, data: words(message.data) } : message, ...rest);
  };
})();
