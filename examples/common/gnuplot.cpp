// SPDX-License-Identifier: Apache-2.0
#include "gnuplot.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <stdexcept>

#include "input_error.hpp"
#include "text_format.hpp"

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

Answer answer_of(const std::string& command, const std::string& input) {
    std::array<int, 2> ends;
    if (pipe(ends.data()) != 0) { return {}; }
    // What ends before it has read everything is an answer, too, and no reason to end with it.
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    std::FILE* child = popen(("exec " + command + " >/dev/fd/" + std::to_string(ends[1])).c_str(), "w");
    close(ends[1]);
    auto text = std::async(std::launch::async, read_all, ends[0]);
    int status = -1;
    if (child != nullptr) {
        std::fwrite(input.data(), 1, input.size(), child);
        status = pclose(child);
    }
    Answer answer{status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.get()};
    close(ends[0]);
    std::signal(SIGPIPE, before);
    return answer;
}

std::string gnuplot_picture(const std::string& file, const Drawing& drawing) {
    static constexpr const char* style =
#include "chart_style.gp"
        ;
    const std::string kind = file.ends_with(".svg") ? "svg" : "png";
    Answer drawn =
        answer_of("gnuplot",
                  style + formatted("set terminal @as_%s size %d,%d\n", kind.c_str(), drawing.width, drawing.height) +
                      drawing.script);
    if (drawn.code != 0 || drawn.text.empty()) {
        throw std::runtime_error("--plot: gnuplot failed on '" + file + "'");
    }
    return drawn.text;
}

}  // namespace program
