// SPDX-License-Identifier: Apache-2.0
#include "gnuplot.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
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

namespace {

std::string read_all(int from) {
    std::string all;
    std::array<char, 4096> part;
    for (ssize_t count; (count = read(from, part.data(), part.size())) > 0;) {
        all.append(part.data(), static_cast<std::size_t>(count));
    }
    return all;
}

}  // namespace

std::string gnuplot_picture(const std::string& file, const Drawing& drawing) {
    std::array<int, 2> ends;
    if (pipe(ends.data()) != 0) { throw std::runtime_error("--plot: no pipe to read gnuplot's picture from"); }
    std::FILE* gnuplot = popen(("exec gnuplot >/dev/fd/" + std::to_string(ends[1])).c_str(), "w");
    close(ends[1]);
    auto picture = std::async(std::launch::async, read_all, ends[0]);
    int status = -1;
    if (gnuplot != nullptr) {
        std::fprintf(gnuplot, "set terminal %s size %d,%d\n", file.ends_with(".svg") ? "svg" : "pngcairo",
                     drawing.width, drawing.height);
        std::fwrite(drawing.script.data(), 1, drawing.script.size(), gnuplot);
        status = pclose(gnuplot);
    }
    std::string drawn = picture.get();
    close(ends[0]);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 || drawn.empty()) {
        throw std::runtime_error("--plot: gnuplot failed on '" + file + "'");
    }
    return drawn;
}

}  // namespace program
