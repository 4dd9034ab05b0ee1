// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "machine.hpp"
#include "summary.hpp"

namespace benchmarks {

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

/// In microseconds.
inline nlohmann::json to_json(const Summary& seconds) {
    return {{"median", seconds.median * 1e6}, {"min", seconds.min * 1e6}, {"p95", seconds.p95 * 1e6}};
}

}  // namespace benchmarks
