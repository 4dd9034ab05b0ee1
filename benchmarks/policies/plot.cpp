// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <sstream>

#include "../../examples/common/gnuplot.hpp"
#include "../../examples/common/text_format.hpp"

namespace benchmarks::policies {

namespace {

std::string title(const Options& o, const char* what) {
    return program::gnuplot_text(std::string("shardkit policies, ") + what + ": " + o.model + ", " +
                                 std::string(element_names[static_cast<std::size_t>(o.element)]));
}

}  // namespace

std::string plot_script(const Options& o, const std::vector<Row>& rows) {
    std::ostringstream script;
    script << "$steps << EOD\n";
    for (const Row& row : rows) {
        const std::string policy(program::policy_names[static_cast<std::size_t>(row.policy)]);
        script << '"' << policy << (o.meshes.size() > 1 ? "\\n" + row.mesh.describe() : "") << '"'
               << program::formatted(" %.6g %.6g %.6g %.6g\n", row.step.median * 1e3, row.compute.median * 1e3,
                                     row.communication.median * 1e3, row.predicted.value_or(0) * 1e3);
    }
    script << "EOD\nset title " << title(o, std::string(engine_names[static_cast<std::size_t>(o.engine)]).c_str())
           << " noenhanced\nset key outside right noenhanced\nset grid ytics\nset style data histograms\n"
              "set style fill solid 0.8 border -1\nset ylabel 'time (ms)'\nset yrange [0:*]\nset xtics noenhanced\n"
              "plot $steps using 2:xtic(1) title 'step', '' using 3 title 'computation', "
              "'' using 4 title 'communication'";
    if (!rows.empty() && rows.front().predicted) { script << ", '' using 5 title 'communication, predicted'"; }
    script << "\n";
    return script.str();
}

std::string plot_script(const Options& o, const std::vector<PredictedRow>& rows) {
    std::ostringstream data;
    std::ostringstream lines;
    for (std::size_t p = 0; p < o.policies.size(); ++p) {
        const std::string policy(program::policy_names[static_cast<std::size_t>(o.policies[p])]);
        data << "$p" << p << " << EOD\n";
        for (const PredictedRow& row : rows) {
            if (row.policy != o.policies[p]) { continue; }
            data << program::formatted("%zu %.6g %.6g\n", row.mesh.world(), row.no_overlap() * 1e3,
                                       row.full_overlap() * 1e3);
        }
        data << "EOD\n";
        lines << (p == 0 ? "" : ", ") << "$p" << p << " using 1:2 with linespoints linewidth 2 linecolor " << p + 1
              << " title " << program::gnuplot_text(policy) << ", $p" << p
              << " using 1:3 with lines dashtype 2 linecolor " << p + 1 << " notitle";
    }
    return data.str() + "set title " + title(o, "PREDICTED step; dashed: with perfect overlap") +
           " noenhanced\nset key outside right noenhanced\nset grid\nset logscale x 2\nset logscale y\n"
           "set xlabel 'ranks'\nset ylabel 'time (ms)'\nplot " +
           lines.str() + "\n";
}

}  // namespace benchmarks::policies
