// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "../../examples/common/text_format.hpp"
#include "machine.hpp"
#include "measure.hpp"

namespace benchmarks {

/// A number as a result keeps it: four digits that count, and whole from 1000 on.
inline std::string json_number(double value) {
    if (!std::isfinite(value)) { return "null"; }
    const bool whole = std::abs(value) >= 999.95 || value == std::floor(value);
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), whole ? "%.0f" : "%.4g", whole ? std::floor(value + 0.5) : value);
    return text.data();
}

inline bool holds_objects(const nlohmann::json& value) {
    return value.is_structured() && std::any_of(value.begin(), value.end(), [](const nlohmann::json& each) {
               return each.is_object() || (each.is_array() && holds_objects(each));
           });
}

/// The text of a result, as benchmarks/common/figures.py writes those of the peers: numbers are rounded; an object or
/// array that holds objects has a line for each of its parts, but what stands in an array has one line.
inline std::string json_text(const nlohmann::json& value, const std::string& indent = "", bool opened = true) {
    if (value.is_number_float()) { return json_number(value.get<double>()); }
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

/// The objects that every benchmark's JSON holds.
inline nlohmann::json to_json(const Gpu& gpu) {
    return {{"name", gpu.name},
            {"memory_bytes", gpu.memory},
            {"driver", gpu.driver},
            {"cuda", gpu.cuda},
            {"nccl", gpu.nccl}};
}

inline nlohmann::json to_json(const Machine& machine) {
    nlohmann::json object{{"processor", machine.processor},
                          {"processors", machine.processors},
                          {"last_cache_bytes", machine.last_cache},
                          {"memory_bytes", machine.memory},
                          {"system", machine.system},
                          {"load_before", machine.load}};
    if (machine.gpu) { object["gpu"] = to_json(*machine.gpu); }
    return object;
}

inline nlohmann::json build_json(const Machine& machine) {
    return {{"compiler", machine.compiler},
            {"flags", machine.flags},
            {"shardkit", machine.version},
            {"commit", machine.commit}};
}

/// A result: what every benchmark records, and its own members.
inline std::string result_text(const char* benchmark, const Machine& machine, nlohmann::json members) {
    members.update({{"benchmark", benchmark},
                    {"format", 1},
                    {"date", machine.date},
                    {"machine", to_json(machine)},
                    {"build", build_json(machine)}});
    return json_text(members) + "\n";
}

/// In microseconds.
inline nlohmann::json to_json(const Summary& seconds) {
    return {{"median", seconds.median * 1e6}, {"min", seconds.min * 1e6}, {"p95", seconds.p95 * 1e6}};
}

}  // namespace benchmarks
