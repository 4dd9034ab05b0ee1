// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include "../../common/gnuplot.hpp"
#include "../../common/text_format.hpp"

namespace train_gpt {

std::string plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses,
                        std::size_t first_step) {
    const bool one = losses.size() == 1;
    std::string script =
        "set title " + program::gnuplot_text(title) + "\nset xlabel 'step'\nset ylabel 'loss (nats per byte)'\n";
    // Of a single point gnuplot chooses no ranges without a warning.
    if (one) {
        script += program::formatted("set xrange [%zu:%zu]\nset yrange [%.9g:%.9g]\n", first_step, first_step + 2,
                                     losses[0] - 1, losses[0] + 1);
    }
    script += program::formatted("plot '-' with %s linetype 1\n", one ? "points" : "lines");
    for (std::size_t i = 0; i < losses.size(); ++i) {
        script += program::formatted("%zu %.9g\n", first_step + i + 1, losses[i]);
    }
    return program::gnuplot_picture(file, {900, 540, script + "e\n"});
}

}  // namespace train_gpt
