// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

/// Safetensors files by hand, as others write them.
namespace written_tensors {

/// One of F32.
struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

/// @param metadata  JSON behind "__metadata__":, none for an empty one
inline void write_file(const std::string& path, const std::vector<Tensor>& tensors, std::string_view metadata = "") {
    std::string header = metadata.empty() ? "{" : "{\"__metadata__\":" + std::string(metadata);
    std::string data;
    for (const Tensor& tensor : tensors) {
        header += header == "{" ? "\"" : ",\"";
        header += tensor.name + "\":{\"dtype\":\"F32\",\"shape\":[";
        for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
            header += (d == 0 ? "" : ",") + std::to_string(tensor.shape[d]);
        }
        header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
        data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
        header += std::to_string(data.size()) + "]}";
    }
    header += "}";
    const std::uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes << header << data;
}

}  // namespace written_tensors
