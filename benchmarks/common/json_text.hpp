// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "../../examples/common/text_format.hpp"

namespace benchmarks {

/// A number as a result keeps it: four digits that count, and whole from 1000 on.
inline std::string number_text(double value) {
    if (!std::isfinite(value)) { return "null"; }
    const bool whole = std::abs(value) >= 999.95 || value == std::floor(value);
    return whole ? program::formatted("%.0f", std::floor(value + 0.5)) : program::formatted("%.4g", value);
}

inline bool holds_objects(const nlohmann::json& value) {
    return value.is_structured() && std::any_of(value.begin(), value.end(), [](const nlohmann::json& each) {
               return each.is_object() || (each.is_array() && holds_objects(each));
           });
}

/// The text of a result, as benchmarks/common/figures.py writes those of the peers: numbers are rounded; an object or
/// array that holds objects has a line for each of its parts, but what stands in an array has one line.
inline std::string json_text(const nlohmann::json& value, const std::string& indent = "", bool opened = true) {
    if (value.is_number_float()) { return number_text(value.get<double>()); }
    if (!value.is_structured()) { return value.dump(); }
    const bool split = opened && holds_objects(value);
    const std::string inner = indent + ' ';
    std::string text;
    for (auto part = value.begin(); part != value.end(); ++part) {
        text += text.empty() ? "" : split ? "," : ", ";
        if (split) { text += '\n' + inner; }
        if (value.is_object()) { text += nlohmann::json(part.key()).dump() + ": "; }
        text += json_text(*part, inner, split && value.is_object());
    }
    if (split) { text += '\n' + indent; }
    return value.is_object() ? '{' + text + '}' : '[' + text + ']';
}

}  // namespace benchmarks
