// SPDX-License-Identifier: Apache-2.0
// For libFuzzer: any bytes as a safetensors header. What is accepted is what another JSON library reads in it, and
// lies without gap or overlap in the bytes behind it; see run.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <shardkit/checkpoint/safetensors.hpp>

namespace {

namespace st = shardkit::safetensors;

void require(bool holds) {
    if (!holds) { std::abort(); }
}

void compare(const st::Header& header, std::string_view text, std::size_t data_bytes) {
    const auto json = nlohmann::json::parse(text);
    require(json.size() == header.tensors.size() + json.count("__metadata__"));
    std::size_t next = 0;
    for (const st::Tensor& tensor : header.tensors) {
        const auto& given = json.at(tensor.name);
        require(given.at("dtype") == st::name(tensor.type));
        require(given.at("data_offsets").at(0) == tensor.bytes.begin &&
                given.at("data_offsets").at(1) == tensor.bytes.end);
        require(given.at("shape").size() == tensor.shape.rank);
        std::size_t bits = st::bits_of(tensor.type);
        for (std::size_t d = 0; d < tensor.shape.rank; ++d) {
            require(given.at("shape").at(d) == tensor.shape.extents[d]);
            bits *= tensor.shape.extents[d];
        }
        require(tensor.bytes.begin == next && bits == 8 * tensor.bytes.size());
        next = tensor.bytes.end;
    }
    require(next == data_bytes);
    for (const auto& [key, value] : header.metadata) { require(json.at("__metadata__").at(key) == value); }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::uint32_t data_bytes = 0;  // of the tensors, before the header's text
    if (size < sizeof data_bytes) { return 0; }
    std::memcpy(&data_bytes, data, sizeof data_bytes);
    // In memory of its own size: a byte read behind it is found.
    const std::string text(reinterpret_cast<const char*>(data) + sizeof data_bytes, size - sizeof data_bytes);
    try {
        compare(st::detail::parse_header(text, data_bytes), text, data_bytes);
    } catch (const shardkit::detail::JsonError& error) { require(error.at <= text.size() && !error.what.empty()); }
    return 0;
}
