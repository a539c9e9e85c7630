"use strict";
// Draws the data of a report of runs.
(function () {
  const { data, colour, dash, trimmed, time, size, text, axis, base, escaped, intervals, draw } = chronodisk;
  const dropped = (series) => series.filter((one) => one.data.length > 0);

  // Cumulative distributions on a logarithmic axis.
  function distribution(title, name, format, lines, logBase) {
    const series = dropped(lines).map((line) => ({ type: "line", step: "start", showSymbol: false, name: line.name,
      data: line.data, lineStyle: { width: 2, type: dash(line.index), color: colour(line.index) },
      itemStyle: { color: colour(line.index) }, emphasis: { disabled: true } }));
    const option = Object.assign(base(title), { series,
      xAxis: axis({ type: "log", logBase, axisLabel: { color: text().dim, formatter: format, hideOverlap: true } }, name),
      yAxis: axis({ type: "value", min: 0, max: 100 }, "requests (%)"),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }] });
    option.tooltip.trigger = "axis";
    option.tooltip.formatter = (points) => escaped(format(points[0].axisValue)) + points.map((point) =>
      "<br>" + point.marker + escaped(point.seriesName) + ": " + trimmed(point.data[1]) + " %").join("");
    return option;
  }

  function overTime(title, name, run, lines, extra) {
    const bin = run.charts.series.bin_s;
    const count = run.charts.series.depth.length;
    const series = lines.map((line, index) => ({ type: "line", step: "end", showSymbol: false, name: line.name,
      connectNulls: false, data: line.data.map((value, place) => [place * bin, value]),
      lineStyle: { width: 1.5, color: colour(index) }, itemStyle: { color: colour(index) },
      areaStyle: line.filled ? { color: colour(index), opacity: 0.2 } : undefined, emphasis: { disabled: true } }));
    const option = Object.assign(base(title), { series,
      xAxis: axis({ type: "value", min: 0, max: bin * count, axisLabel: { color: text().dim, hideOverlap: true } }, "time (s)"),
      yAxis: axis(Object.assign({ type: "value", min: 0 }, extra), name),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }, { type: "slider", xAxisIndex: 0, height: 12, bottom: 2, filterMode: "none", brushSelect: true }] });
    option.grid.bottom = 58;
    option.tooltip.trigger = "axis";
    return option;
  }

  function heat(run) {
    const map = run.charts.heat;
    const most = map.cells.reduce((most, cell) => Math.max(most, cell[2]), 1);
    const tone = text();
    const cell = (params, api) => {
      const [x, y] = api.coord([api.value(0) * map.bin_s, map.first_byte + (api.value(1) + 1) * map.bin_bytes]);
      const [width, height] = api.size([map.bin_s, map.bin_bytes]);
      const shape = echarts.graphic.clipRectByRect({ x, y, width: width + 0.5, height: height + 0.5 }, params.coordSys);
      return shape && { type: "rect", shape, style: { fill: api.visual("color") } };
    };
    const option = Object.assign(base("Addresses over time"), {
      xAxis: axis({ type: "value", min: 0, max: map.bins[0] * map.bin_s, splitLine: { show: false } }, "time (s)"),
      yAxis: axis({ type: "value", min: map.first_byte, max: map.first_byte + map.bins[1] * map.bin_bytes,
        splitLine: { show: false }, axisLabel: { color: tone.dim, formatter: size } }, "address (bytes)"),
      visualMap: { min: 1, max: most, dimension: 2, hoverLink: false, orient: "horizontal", right: 10, top: 0, itemHeight: 90, itemWidth: 12,
        text: [most + " requests", "1"], textStyle: { color: tone.dim }, inRange: { color: ["#c6dbef", "#6baed6", "#2171b5", "#d55e00"] } },
      series: [{ type: "custom", renderItem: cell, data: map.cells, encode: { x: 0, y: 1 }, progressive: 0 }],
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }, { type: "slider", xAxisIndex: 0, height: 12, bottom: 2, filterMode: "none", brushSelect: true }] });
    option.grid = { left: 76, right: 18, top: 40, bottom: 58 };
    option.yAxis.nameGap = 56;
    option.legend.show = false;
    option.tooltip.formatter = (point) => point.value[2] + " requests at " + trimmed(point.value[0] * map.bin_s) + " s, " +
      size(map.first_byte + point.value[1] * map.bin_bytes);
    return option;
  }

  // States by draw over time. A column can hold several cuts; failed states are drawn above passed ones.
  function cuts(marks) {
    const parts = [["passed", 2, "circle", 7, 0], ["failed", 3, "diamond", 12, 1]];
    const series = parts.map(([name, place, symbol, symbolSize, tone]) => ({ type: "scatter", name, symbol, symbolSize, z: 2 + tone,
      data: marks.marks.filter((mark) => mark[place] > 0), encode: { x: 0, y: 1 }, itemStyle: { color: colour(tone) }, emphasis: { disabled: true } }));
    const option = Object.assign(base("States by draw and cut"), { series: dropped(series),
      xAxis: axis({ type: "value", min: marks.interval_s[0], max: marks.interval_s[1], axisLabel: { color: text().dim, hideOverlap: true } }, "time of the cut (s)"),
      yAxis: axis({ type: "category", inverse: true, data: marks.draws, nameGap: 0 }, ""),
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none" }] });
    option.grid = { left: 8, right: 24, top: 56, bottom: 44, containLabel: true };
    option.tooltip.formatter = (point) => escaped(marks.draws[point.data[1]]) + ", cut at " + point.data[0].toFixed(6) + " s: " +
      point.data[2] + " passed, " + point.data[3] + " failed";
    return option;
  }

  const runs = data.runs;
  const operations = [...new Set(runs.flatMap((run) => Object.keys(run.charts.service_us)))];
  for (const operation of operations) {
    draw("service-" + operation, () => distribution("Service time: " + operation, "service time, logarithmic", time,
      runs.map((run, index) => ({ name: run.label, index, data: run.charts.service_us[operation] || [] })), 10));
  }
  draw("distance", () => distribution("Distance from the request before", "distance (bytes), logarithmic", size,
    runs.map((run, index) => ({ name: run.label, index, data: run.charts.distance_bytes })), 32));
  const rowsOf = (estimate, unit) => runs.map((run, index) => ({ index, label: run.label, value: run[estimate] }))
    .filter((row) => row.value).map(({ index, label, value }) => {
      const half = value.half_width_95 || 0;
      const sure = value.half_width_95 === null ? " (one repetition)" : " ± " + half.toPrecision(3);
      return { index, label, mean: value.mean, low: value.mean - half, high: value.mean + half, words: value.mean.toPrecision(4) + sure + " " + unit };
    });
  draw("run-times", () => intervals("Run time with 95 % interval", "run time (s)", rowsOf("run_time_s", "s")));
  draw("differences", () => intervals("Paired difference to " + runs[0].label + " with 95 % interval", "difference of run time (%)", rowsOf("difference_percent", "%")));
  runs.forEach((run, index) => {
    const group = "run-" + index;
    const { series } = run.charts;
    draw("time-" + index, () => overTime("Service time", "service time (µs)", run,
      [{ name: "median", data: series.p50_us }, { name: "99th percentile", data: series.p99_us }],
      { type: "log", min: undefined, axisLabel: { color: text().dim, formatter: (us) => trimmed(us), hideOverlap: true } }), group);
    draw("depth-" + index, () => overTime("Queue depth", "outstanding requests", run,
      [{ name: "outstanding", data: series.depth, filled: true }]), group);
    draw("rate-" + index, () => overTime("Transfer rate", "MB/s", run,
      [{ name: "read", data: series.read_mb_s }, { name: "written", data: series.write_mb_s }]), group);
    draw("heat-" + index, () => heat(run), group);
    if (run.power_cuts) draw("cuts-" + index, () => cuts(run.power_cuts));
    echarts.connect(group);
  });
  chronodisk.start();
})();
