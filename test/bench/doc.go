// Command bench measures what docs/performance.md reports: how soon a killed
// master is replaced, and what an idle repld costs. It runs the real programs,
// built as they are shipped, over real servers, a fresh cluster for each run.
//
// It ends with 1 if an acknowledged row was lost or a run failed; it judges no
// time.
package main
