/* SPDX-License-Identifier: Apache-2.0 */
/* The order of search results: headings first, then functions and classes by name, then words of the text. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 10, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 40,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
};
