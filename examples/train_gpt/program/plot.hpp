// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace train_gpt {

/// Draws the losses over the steps into a .png or .svg file, by way of gnuplot.
/// @throws std::runtime_error when gnuplot fails
void plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses);

}  // namespace train_gpt
