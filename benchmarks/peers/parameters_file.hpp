// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace benchmarks::peers {

/// Parameters of one side for the others to read: fp32 in the machine's order.
struct ParametersFile {
    std::string name;

    /// @throws std::runtime_error when it cannot be written
    void write(std::span<const float> values) const {
        std::ofstream file(name, std::ios::binary);
        file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
        if (!file.flush()) { throw std::runtime_error("cannot write '" + name + "'"); }
    }

    /// The largest difference from `mine` over the largest of these; 1e300 when a value is no number.
    /// @throws std::runtime_error when the file has not as many values
    double difference_from(std::span<const float> mine) const {
        std::vector<float> others(mine.size());
        std::ifstream file(name, std::ios::binary);
        const auto bytes = static_cast<std::streamsize>(mine.size_bytes());
        if (!file.read(reinterpret_cast<char*>(others.data()), bytes) ||
            file.peek() != std::ifstream::traits_type::eof()) {
            throw std::runtime_error("'" + name + "': expected a file of " + std::to_string(bytes) + " bytes");
        }
        double difference = 0;
        double largest = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const double apart = std::abs(double{mine[i]} - double{others[i]});
            if (!std::isfinite(apart)) { return 1e300; }
            difference = std::max(difference, apart);
            largest = std::max(largest, std::abs(double{mine[i]}));
        }
        return difference == 0 ? 0 : difference / largest;
    }
};

}  // namespace benchmarks::peers
