// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <cstddef>

#include "../../common/gnuplot.hpp"
#include "../../common/text_format.hpp"

namespace train_gpt {

namespace {

/// The ranges of a curve that is a single point, which gnuplot does not choose without a warning.
std::string one_point(double loss) {
    return program::formatted("set xrange [0:2]\nset yrange [%.9g:%.9g]\n", loss - 1, loss + 1);
}

}  // namespace

std::string plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses) {
    std::string script =
        "set title " + program::gnuplot_text(title) +
        " noenhanced\nset xlabel 'step'\nset ylabel 'loss (nats per byte)'\nset grid\nunset key\n" +
        program::formatted("plot '-' with %s linewidth 2\n", losses.size() == 1 ? "points" : "lines");
    if (losses.size() == 1) { script = one_point(losses[0]) + script; }
    for (std::size_t i = 0; i < losses.size(); ++i) { script += program::formatted("%zu %.9g\n", i + 1, losses[i]); }
    return program::gnuplot_picture(file, {900, 540, script + "e\n"});
}

}  // namespace train_gpt
