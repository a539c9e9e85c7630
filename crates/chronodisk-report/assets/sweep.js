"use strict";
// Draws the data of a report of a sweep.
(function () {
  const { data, colour, dash, text, axis, base, escaped, intervals, draw } = chronodisk;
  const short = (value) => String(Number(value.toPrecision(4)));

  // Logarithmic where the values are above zero and span more than a factor of twenty, as in the SVG files.
  function scale(values) {
    const least = values.reduce((least, value) => Math.min(least, value), Infinity);
    const most = values.reduce((most, value) => Math.max(most, value), -Infinity);
    if (!(least > 0 && most > 20 * least)) return { type: "value", scale: true };
    return { type: "log", logBase: values.every((value) => Number.isInteger(Math.log2(value))) ? 2 : 10 };
  }

  // A figure against an axis: a curve for each combination of the other axes, each point with its interval.
  function curves(chart) {
    const points = chart.lines.flatMap((line) => line.points);
    const whisker = (params, api) => {
      const [x, low] = api.coord([api.value(0), api.value(2)]);
      const high = api.coord([api.value(0), api.value(3)])[1];
      const style = { stroke: api.visual("color"), lineWidth: 1.5 };
      const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
      const ends = [low, high].map((y) => line(x - 4, y, x + 4, y));
      return { type: "group", children: [line(x, low, x, high), ...ends] };
    };
    const series = chart.lines.flatMap((line, index) => [
      { type: "line", name: line.name, data: line.points, encode: { x: 0, y: 1 }, symbol: "circle", symbolSize: 6,
        lineStyle: { width: 2, type: dash(index), color: colour(index) }, itemStyle: { color: colour(index) },
        emphasis: { disabled: true } },
      { type: "custom", name: line.name, renderItem: whisker, data: line.points.filter((point) => point[2] !== null),
        encode: { x: 0, y: [2, 3] }, itemStyle: { color: colour(index) }, silent: true }]);
    const label = { color: text().dim, formatter: short, hideOverlap: true };
    const option = Object.assign(base(chart.title), { series,
      xAxis: axis(Object.assign(scale(points.map((point) => point[0])), { axisLabel: label }), chart.x),
      yAxis: axis(Object.assign(scale(points.flatMap((point) => point.slice(1).filter((value) => value !== null))),
        { axisLabel: label, nameGap: 46 }), chart.y),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }] });
    if (chart.lines.every((line) => line.name === "")) option.legend.show = false;
    option.tooltip.formatter = (point) => {
      const [x, y, low, high] = point.data;
      const ends = low === null ? "" : " (" + short(low) + " to " + short(high) + ")";
      return escaped(point.seriesName) + "<br>" + escaped(chart.x) + " " + short(x) + ": " + short(y) + ends;
    };
    return option;
  }

  for (const chart of data.curves) draw(chart.id, () => curves(chart));
  for (const chart of data.bars) draw(chart.id, () => intervals(chart.title, chart.name, chart.rows));
  chronodisk.start();
})();
