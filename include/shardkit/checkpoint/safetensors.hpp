// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_shape.hpp>

/// The format of Hugging Face's safetensors files: a little-endian 64-bit N, N bytes of JSON, the bytes of the
/// tensors.
/// Source: the format's description and its reader (github.com/huggingface/safetensors); this reader is stricter.
namespace shardkit::safetensors {

/// The element types of the format; not all of them are read as numbers.
enum class DType : std::uint8_t {
    boolean,
    f4,
    f6_e2m3,
    f6_e3m2,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    i16,
    u16,
    f16,
    bf16,
    i32,
    u32,
    f32,
    c64,
    f64,
    i64,
    u64
};

namespace detail {
struct DTypeRow {
    std::string_view name;
    std::size_t bits;
};
inline constexpr std::array<DTypeRow, 22> dtypes{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};
static_assert(dtypes[static_cast<std::size_t>(DType::u64)].name == "U64");
static_assert(dtypes[static_cast<std::size_t>(DType::bf16)].name == "BF16");
}  // namespace detail

/// Returns the element type's name in files: "BF16".
constexpr std::string_view name(DType type) noexcept { return detail::dtypes[static_cast<std::size_t>(type)].name; }
/// Returns the bits of one element.
constexpr std::size_t bits_of(DType type) noexcept { return detail::dtypes[static_cast<std::size_t>(type)].bits; }

/// One tensor of a file.
struct Tensor {
    std::string name;
    DType type{};
    TensorShape shape;
    IndexRange bytes;  ///< range behind the header, row-major

    std::size_t numel() const noexcept { return shape.numel(); }
};

/// The header of a file: everything before the bytes of the tensors.
struct Header {
    std::vector<Tensor> tensors;                                ///< in the order of their bytes
    std::vector<std::pair<std::string, std::string>> metadata;  ///< sorted by key
    std::size_t data_begin = 0;                                 ///< offset of the first tensor in the file
};

/// The largest size of a header, as the format's own reader accepts it.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

namespace detail {
/// Returns a name from an untrusted file for a message: shortened, with control characters replaced.
inline std::string shown(std::string_view name) {
    constexpr std::size_t longest = 120;
    std::string text(name.substr(0, longest));
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) { c = '?'; }
    }
    return name.size() > longest ? text + "..." : text;
}
}  // namespace detail

/// Returns names of tensors as a list for a message: quoted, without control characters, the first eight of many.
/// "nothing" if there are none.
inline std::string listed(std::span<const std::string> names) {
    std::string text = names.empty() ? "nothing" : "";
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i == 8) { return shardkit::detail::concat(text, " and ", names.size() - i, " more"); }
        shardkit::detail::append(text, i == 0 ? "'" : ", '", detail::shown(names[i]), "'");
    }
    return text;
}

namespace detail {

using shardkit::detail::concat;
using shardkit::detail::JsonError;
using shardkit::detail::JsonReader;

inline DType dtype(JsonReader& json) {
    const std::size_t begin = json.at();
    const std::string given = json.string();
    const auto* const row =
        std::find_if(dtypes.begin(), dtypes.end(), [&](const DTypeRow& known) { return known.name == given; });
    if (row == dtypes.end()) { JsonReader::fail_at(begin, "no element type is called '", shown(given), "'"); }
    return static_cast<DType>(row - dtypes.begin());
}

/// Reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}: these keys in any order, each once, and no
/// others.
inline Tensor tensor(JsonReader& json, const std::string& name) {
    Tensor made{name, {}, {}, {}};
    constexpr std::array<std::string_view, 3> keys{"dtype", "shape", "data_offsets"};
    std::array<bool, 3> seen{};
    std::size_t offsets = 0;
    const std::size_t begin = json.at();
    json.object([&](const std::string& key, std::size_t at) {
        const auto which = static_cast<std::size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
        if (which == keys.size()) {
            JsonReader::fail_at(at, "'", shown(name), "' has a '", shown(key),
                                "', expected dtype, shape and data_offsets");
        }
        if (std::exchange(seen[which], true)) { JsonReader::fail_at(at, "'", shown(name), "' has two ", key); }
        if (which == 0) {
            made.type = dtype(json);
        } else if (which == 1) {
            json.array([&] {
                if (made.shape.rank == TensorShape::max_rank) {
                    json.fail("'", shown(name), "' has more than ", TensorShape::max_rank, " extents");
                }
                made.shape.extents[made.shape.rank++] = json.number();
            });
        } else {
            json.array([&] {
                const std::uint64_t offset = json.number();
                if (offsets == 0) { made.bytes.begin = offset; }
                if (offsets == 1) { made.bytes.end = offset; }
                ++offsets;
            });
        }
    });
    if (!seen[0] || !seen[1] || offsets != 2) {
        JsonReader::fail_at(begin, "'", shown(name), "' lacks ",
                            !seen[0]   ? "dtype"
                            : !seen[1] ? "shape"
                                       : "data_offsets of two numbers");
    }
    return made;
}

/// Returns the bytes of a tensor.
/// @returns none where they overflow 64 bits or are not a whole number
inline std::optional<std::size_t> bytes_of(const Tensor& tensor) noexcept {
    const std::size_t bits = bits_of(tensor.type);
    if (!tensor.shape.countable()) { return std::nullopt; }
    const std::size_t numel = tensor.shape.numel();
    if (numel > std::numeric_limits<std::size_t>::max() / bits || numel * bits % 8 != 0) { return std::nullopt; }
    return numel * bits / 8;
}

/// Reads a header's JSON, and checks it against the number of bytes that follow it in the file: tensors must fill 0
/// to `data_bytes` without gap or overlap, each with the size of its shape and type. Memory: a small multiple of the
/// text at most.
/// @throws JsonError with the byte of the text and the error
inline Header parse_header(std::string_view text, std::size_t data_bytes) {
    Header header;
    if (text.empty() || text.front() != '{') { JsonReader::fail_at(0, "expected '{' as the first byte"); }
    JsonReader json(text);
    bool has_metadata = false;
    json.object([&](const std::string& key, std::size_t at) {
        if (key != "__metadata__") {
            header.tensors.push_back(tensor(json, key));
            return;
        }
        if (std::exchange(has_metadata, true)) { JsonReader::fail_at(at, "two __metadata__"); }
        if (json.null()) { return; }  // some writers store null for none
        json.object([&](const std::string& name, std::size_t) { header.metadata.emplace_back(name, json.string()); });
    });
    json.end();

    std::sort(header.metadata.begin(), header.metadata.end());
    std::set<std::string_view> known;
    for (const auto& [key, value] : header.metadata) {
        if (!known.insert(key).second) { json.fail("the metadata have '", shown(key), "' twice"); }
    }
    known.clear();
    for (const Tensor& t : header.tensors) {
        if (!known.insert(t.name).second) { json.fail("two tensors are called '", shown(t.name), "'"); }
    }
    // Those without bytes that are at one place go by name.
    std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
        return std::tie(a.bytes.begin, a.bytes.end, a.name) < std::tie(b.bytes.begin, b.bytes.end, b.name);
    });
    std::size_t next = 0;
    for (const Tensor& t : header.tensors) {
        const std::string what = concat("'", shown(t.name), "' ", safetensors::name(t.type), " ", t.shape.describe());
        const auto bytes = bytes_of(t);
        if (!bytes) { json.fail(what, ": expected whole bytes, fewer than 2^64"); }
        if (t.bytes.begin != next) {
            json.fail(what, " begins at byte ", t.bytes.begin, t.bytes.begin < next ? ", within" : ", behind",
                      " what ends at ", next, ": expected no gap and no overlap");
        }
        if (t.bytes.end < t.bytes.begin || t.bytes.end - t.bytes.begin != *bytes) {
            json.fail(what, " lies in bytes ", t.bytes.begin, " to ", t.bytes.end, ", expected ", *bytes, " bytes");
        }
        next = t.bytes.end;
    }
    if (next != data_bytes) {
        json.fail("the tensors end at byte ", next, " behind the header, the file at ", data_bytes);
    }
    return header;
}

}  // namespace detail

}  // namespace shardkit::safetensors
