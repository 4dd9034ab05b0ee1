// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace shardkit::test {

/// What PyTorch computed; see tests/golden/make_optimizer_golden.py.
inline const nlohmann::json& optimizer_golden() {
    static const nlohmann::json golden = [] {
        const std::string path = std::string(SHARDKIT_GOLDEN_DIR) + "/optimizer_golden.json";
        std::ifstream file(path);
        if (!file) { throw std::runtime_error("cannot read " + path); }
        return nlohmann::json::parse(file);
    }();
    return golden;
}

/// The cases of one kind whose elements are of type A.
template <class A>
std::vector<nlohmann::json> golden_cases(const std::string& kind) {
    const std::string_view dtype = sizeof(A) == 4 ? "float32" : "float64";
    std::vector<nlohmann::json> cases;
    for (const auto& golden : optimizer_golden().at(kind)) {
        if (golden.at("dtype").get<std::string>() == dtype) { cases.push_back(golden); }
    }
    return cases;
}

template <class A>
std::vector<A> numbers(const nlohmann::json& list) {
    return list.get<std::vector<A>>();
}

}  // namespace shardkit::test
