// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace program {

/// @throws InputError when `file` is neither .png nor .svg, or gnuplot, which draws, is not installed
void require_plotter(const std::string& file);

/// Text between quotes in a gnuplot script: nothing is special in it.
std::string gnuplot_text(const std::string& text);

/// A gnuplot script, and the size in pixels that it is made for.
struct Drawing {
    int width = 0;
    int height = 0;
    std::string script;
};

/// Runs the script, which draws into `file`.
/// @throws std::runtime_error when gnuplot fails
void run_gnuplot(const std::string& file, const Drawing& drawing);

}  // namespace program
