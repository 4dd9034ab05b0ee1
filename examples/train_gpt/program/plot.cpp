// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <cstdint>
#include <map>

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

std::string plot_stragglers(const std::string& file, const std::string& title,
                            const flight_records::Stragglers& stragglers, std::size_t ranks) {
    std::map<std::uint32_t, std::vector<double>> waited;  // by step and rank
    for (const flight_records::RankWait& wait : stragglers.waits) {
        std::vector<double>& by_rank = waited[wait.step];
        by_rank.resize(ranks);
        by_rank[wait.rank] += 1e3 * wait.seconds;
    }
    std::string script =
        "set title " + program::gnuplot_text(title) +
        "\nset xlabel 'step'\nset ylabel 'the others waited (ms)'\nset key outside\nset yrange [0:*]\n";
    if (waited.empty()) { script += "set xrange [0:1]\nset yrange [0:1]\n"; }
    if (waited.size() == 1) {
        script += program::formatted("set xrange [%u:%u]\n", waited.begin()->first - 1, waited.begin()->first + 1);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        script += program::formatted("%s '-' with linespoints title 'rank %zu'", rank == 0 ? "plot" : ",", rank);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        script += "\n";
        for (const auto& [step, by_rank] : waited) { script += program::formatted("%u %.6g\n", step, by_rank[rank]); }
        script += waited.empty() ? "0 0\ne" : "e";
    }
    return program::gnuplot_picture(file, {900, 540, script + "\n"});
}

}  // namespace train_gpt
