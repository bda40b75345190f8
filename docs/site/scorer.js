// What a search puts first: the guide and the pages about the language, then the rest, then single findings and decisions.
const FIRST = /^docs\/(guide\/|language|reference|glossary)/;
const LAST = /^docs\/(rules|decisions)\/|^tests\//;

var Scorer = {
  // A result is [page, title, anchor, description, score, file].
  score: ([page, , , , score]) => score * (FIRST.test(page) ? 3 : LAST.test(page) ? 0.5 : 1),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
