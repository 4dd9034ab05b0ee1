// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace program {

/// @throws InputError when `file` is neither .png nor .svg, or gnuplot, which draws, is not installed
void require_plotter(const std::string& file);

/// What a shell's command said.
struct Answer {
    int code = -1;  ///< its exit code; -1: it could not be run, or did not end by itself
    std::string text;
};

/// Runs a command that reads `input` and answers on its standard output.
Answer answer_of(const std::string& command, const std::string& input);

/// Text between quotes in a gnuplot script: nothing is special in it.
std::string gnuplot_text(const std::string& text);

/// A script without terminal and style (chart_style.gp), and the size in pixels that it is made for.
struct Drawing {
    int width = 0;
    int height = 0;
    std::string script;
};

/// What it draws, as the content of `file`, whose name's end says in which format.
/// @throws std::runtime_error when gnuplot fails
std::string gnuplot_picture(const std::string& file, const Drawing& drawing);

}  // namespace program
