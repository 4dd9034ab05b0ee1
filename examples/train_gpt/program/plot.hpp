// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace train_gpt {

/// A picture of the losses over the steps behind `first_step`, as the content of a .png or .svg file, by way of
/// gnuplot.
/// @throws std::runtime_error when gnuplot fails
std::string plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses,
                        std::size_t first_step = 0);

}  // namespace train_gpt
