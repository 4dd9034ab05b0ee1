// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace program {

/// @throws InputError when `file` is neither .png nor .svg, or gnuplot, which draws, is not installed
void require_plotter(const std::string& file);

/// Text between quotes in a gnuplot script: nothing is special in it.
std::string gnuplot_text(const std::string& text);

/// What a gnuplot script draws, as the content of `file`, whose name's end says in which format.
/// @throws std::runtime_error when gnuplot fails
std::string gnuplot_picture(const std::string& file, int width, int height, const std::string& script);

}  // namespace program
