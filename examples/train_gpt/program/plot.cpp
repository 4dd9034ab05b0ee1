// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <sys/wait.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "input_error.hpp"

namespace train_gpt {

namespace {

/// A gnuplot string in single quotes: nothing is special in it but the quote itself.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) { result += c == '\'' ? "''" : std::string(1, c); }
    return result + "'";
}

}  // namespace

void require_plotter() {
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
        throw InputError(
            "--plot needs the command gnuplot, which was not found: expected it in PATH (Debian: gnuplot-nox)");
    }
}

void plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses) {
    std::FILE* pipe = popen("gnuplot", "w");
    if (pipe == nullptr) { throw std::runtime_error("--plot: gnuplot could not be started"); }
    const bool vector = file.ends_with(".svg");
    std::fprintf(pipe, "set terminal %s size 900,540\nset output %s\n", vector ? "svg" : "pngcairo",
                 quoted(file).c_str());
    std::fprintf(pipe, "set title %s noenhanced\nset xlabel 'step'\nset ylabel 'loss (nats per byte)'\nset grid\n",
                 quoted(title).c_str());
    std::fprintf(pipe, "unset key\nplot '-' with %s linewidth 2\n", losses.size() == 1 ? "points" : "lines");
    for (std::size_t i = 0; i < losses.size(); ++i) {
        if (std::isfinite(losses[i])) { std::fprintf(pipe, "%zu %.9g\n", i + 1, losses[i]); }
    }
    std::fprintf(pipe, "e\n");
    const int status = pclose(pipe);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error("--plot: gnuplot failed on '" + file + "'");
    }
}

}  // namespace train_gpt
