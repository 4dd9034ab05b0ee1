// SPDX-License-Identifier: Apache-2.0
#include "gnuplot.hpp"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "input_error.hpp"

namespace program {

void require_plotter(const std::string& file) {
    if (!file.ends_with(".svg") && !file.ends_with(".png")) {
        throw bad_flag("--plot", file, "a file name that ends in .png or .svg");
    }
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
        throw InputError(
            "--plot needs the command gnuplot, which was not found: expected it in PATH (Debian: gnuplot-nox)");
    }
}

std::string gnuplot_text(const std::string& text) {
    std::string result = "'";
    for (const char c : text) { result += c == '\'' ? "''" : std::string(1, c); }
    return result + "'";
}

void run_gnuplot(const std::string& file, const Drawing& drawing) {
    std::FILE* pipe = popen("gnuplot", "w");
    if (pipe == nullptr) { throw std::runtime_error("--plot: gnuplot could not be started"); }
    std::fprintf(pipe, "set terminal %s size %d,%d\nset output %s\n", file.ends_with(".svg") ? "svg" : "pngcairo",
                 drawing.width, drawing.height, gnuplot_text(file).c_str());
    std::fwrite(drawing.script.data(), 1, drawing.script.size(), pipe);
    const int status = pclose(pipe);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error("--plot: gnuplot failed on '" + file + "'");
    }
}

}  // namespace program
