// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <algorithm>
#include <sstream>

#include "../../examples/common/text_format.hpp"
#include "../common/plot_range.hpp"

namespace benchmarks::policies {

namespace {

std::string title(const Options& o, const char* what) {
    return program::gnuplot_text(std::string("shardkit policies, ") + what + ": " + o.model + ", " +
                                 std::string(element_names[static_cast<std::size_t>(o.element)]));
}

using program::Drawing;

// Pixels beside the bars; on the right is the legend.
constexpr int left_of_bars = 150;
constexpr int right_of_bars = 300;

}  // namespace

program::Drawing plot_drawing(const Options& o, const std::vector<Row>& rows) {
    const auto count = static_cast<int>(rows.size());
    std::ostringstream script;
    std::size_t longest = 0;
    script << "$steps << EOD\n";
    for (const Row& row : rows) {
        std::string label(program::policy_names[static_cast<std::size_t>(row.policy)]);
        if (o.meshes.size() > 1) { label += " " + row.mesh.describe(); }
        longest = std::max(longest, label.size());
        script << '"' << label << '"'
               << program::formatted(" %.6g %.6g %.6g %.6g\n", row.step.median * 1e3, row.compute.median * 1e3,
                                     row.communication.median * 1e3, row.predicted.value_or(0) * 1e3);
    }
    // Labels that are turned by 45 degrees take less than their length below the axis and left of it.
    const int below = 30 + 7 * static_cast<int>(longest);
    const Drawing drawing{right_of_bars + left_of_bars + std::max(700, 60 * count), 480 + below, ""};
    script << "EOD\nset title " << title(o, std::string(engine_names[static_cast<std::size_t>(o.engine)]).c_str())
           << " noenhanced\nset key outside right noenhanced\nset grid ytics\nset style data histograms\n"
              "set style fill solid 0.8 border -1\nset ylabel 'time (ms)'\nset yrange [0:*]\n"
              "set xtics noenhanced rotate by 45 right\n"
           << program::formatted(
                  "set xrange [-0.6:%g]\nset lmargin at screen %.5f\nset rmargin at screen %.5f\n"
                  "set bmargin at screen %.5f\n",
                  count - 0.4, static_cast<double>(left_of_bars) / drawing.width,
                  1 - static_cast<double>(right_of_bars) / drawing.width, static_cast<double>(below) / drawing.height)
           << "plot $steps using 2:xtic(1) title 'step', '' using 3 title 'computation', "
              "'' using 4 title 'communication'";
    if (!rows.empty() && rows.front().predicted) { script << ", '' using 5 title 'communication, predicted'"; }
    script << "\n";
    return {drawing.width, drawing.height, script.str()};
}

program::Drawing plot_drawing(const Options& o, const std::vector<PredictedRow>& rows) {
    std::ostringstream data;
    std::ostringstream lines;
    LogRange ranks;
    LogRange times;
    for (std::size_t p = 0; p < o.policies.size(); ++p) {
        const std::string policy(program::policy_names[static_cast<std::size_t>(o.policies[p])]);
        data << "$p" << p << " << EOD\n";
        for (const PredictedRow& row : rows) {
            if (row.policy != o.policies[p]) { continue; }
            data << program::formatted("%zu %.6g %.6g\n", row.mesh.world(), row.no_overlap() * 1e3,
                                       row.full_overlap() * 1e3);
            ranks.add(static_cast<double>(row.mesh.world()));
            times.add(row.no_overlap() * 1e3);
            times.add(row.full_overlap() * 1e3);
        }
        data << "EOD\n";
        // Policies that take as long lie on each other: the first is the widest.
        lines << (p == 0 ? "" : ", ") << "$p" << p << " using 1:2 with linespoints linewidth "
              << 2 * (o.policies.size() - p) << " linecolor " << p + 1 << " title " << program::gnuplot_text(policy)
              << ", $p" << p << " using 1:3 with lines dashtype 2 linewidth " << o.policies.size() - p
              << " linecolor " << p + 1 << " notitle";
    }
    return {1100, 600,
            data.str() + "set title " + title(o, "PREDICTED step; dashed: with perfect overlap") +
                " noenhanced\nset key outside right noenhanced\nset grid\nset logscale x 2\nset logscale y\n"
                "set xlabel 'ranks'\nset ylabel 'time (ms)'\nset xrange " +
                ranks.text() + "\nset yrange " + times.text() + "\nplot " + lines.str() + "\n"};
}

}  // namespace benchmarks::policies
