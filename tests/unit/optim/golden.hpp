// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace shardkit::test {

inline nlohmann::json read_golden(const std::string& name) {
    const std::string path = std::string(SHARDKIT_GOLDEN_DIR) + "/" + name;
    std::ifstream file(path);
    if (!file) { throw std::runtime_error("cannot read " + path); }
    return nlohmann::json::parse(file);
}

/// What PyTorch computed; see tests/golden/make_optimizer_golden.py.
inline const nlohmann::json& optimizer_golden() {
    static const nlohmann::json golden = read_golden("optimizer_golden.json");
    return golden;
}
/// What exact arithmetic gives; see tests/golden/make_lion_golden.py.
inline const nlohmann::json& lion_golden() {
    static const nlohmann::json golden = read_golden("lion_golden.json");
    return golden;
}

/// The cases of one kind whose elements are of type A.
template <class A>
std::vector<nlohmann::json> golden_cases(const std::string& kind, const nlohmann::json& all = optimizer_golden()) {
    const std::string_view dtype = sizeof(A) == 4 ? "float32" : "float64";
    std::vector<nlohmann::json> cases;
    for (const auto& golden : all.at(kind)) {
        if (golden.at("dtype").get<std::string>() == dtype) { cases.push_back(golden); }
    }
    return cases;
}

template <class A>
std::vector<A> numbers(const nlohmann::json& list) {
    return list.get<std::vector<A>>();
}

}  // namespace shardkit::test
