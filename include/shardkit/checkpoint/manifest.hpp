// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// The contents of a checkpoint's folder with their digests. Written last.
struct Manifest {
    struct Tensor {
        std::string name;
        std::uint32_t crc32c = 0;
    };
    struct File {
        std::string name;  ///< path within the folder
        std::uint64_t bytes = 0;
        std::uint32_t header_crc32c = 0;  ///< of the bytes before the first tensor
        List<Tensor> tensors;             ///< in the order of their bytes
    };

    std::uint64_t step = 0;
    List<File> files;
    std::vector<std::pair<std::string, std::string>> strings;
};

inline constexpr std::string_view manifest_name = "manifest.json";
/// The index that says which of several model files has which tensor, under the name that Hugging Face's libraries
/// use.
inline constexpr std::string_view index_name = "model.safetensors.index.json";
inline constexpr std::uint64_t manifest_version = 1;

/// The first bytes of every manifest.
inline constexpr std::string_view manifest_begin = "{\"format\": \"shardkit checkpoint\", \"version\": ";

/// Returns a digest as text: "0a1b2c3d".
inline std::string digest_text(std::uint32_t digest) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text(8, '0');
    for (std::size_t i = 8; i-- > 0; digest >>= 4U) { text[i] = digits[digest & 0xFU]; }
    return text;
}

/// Returns the manifest's last bytes: a digest of everything before them.
inline std::string manifest_end(std::string_view before) {
    return concat(",\n\"crc32c\": \"", digest_text(crc32c::of(std::as_bytes(std::span(before)))), "\"}\n");
}

inline std::string manifest_text(const Manifest& manifest) {
    std::string text = concat(manifest_begin, manifest_version, ", \"step\": ", manifest.step, ",\n\"strings\": {");
    std::string_view comma;
    for (const auto& [key, value] : manifest.strings) {
        append(text, comma, json_string(key), ": ", json_string(value));
        comma = ", ";
    }
    text += "},\n\"files\": {";
    std::string_view between;
    for (const Manifest::File& file : manifest.files) {
        append(text, between, "\n ", json_string(file.name), ": {\"bytes\": ", file.bytes, ", \"header_crc32c\": \"",
               digest_text(file.header_crc32c), "\", \"tensors_crc32c\": {");
        between = ",";
        comma = "";
        for (const Manifest::Tensor& tensor : file.tensors) {
            append(text, comma, "\n  ", json_string(tensor.name), ": \"", digest_text(tensor.crc32c), "\"");
            comma = ",";
        }
        text += "}}";
    }
    text += "}";
    return text + manifest_end(text);
}

/// Returns whether a name may be a file of a checkpoint, that is, does not lead out of its folder.
inline bool stays_inside(std::string_view name) {
    if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) { return false; }
    for (std::size_t begin = 0; begin <= name.size();) {
        const std::size_t end = std::min(name.find('/', begin), name.size());
        const std::string_view part = name.substr(begin, end - begin);
        if (part.empty() || part == "." || part == "..") { return false; }
        begin = end + 1;
    }
    return true;
}

/// Reads a manifest.
/// @throws JsonError
class ManifestReader {
  public:
    static Manifest read(std::string_view text) {
        // The digest is checked first, so that any changed bit is reported as damage.
        const std::size_t length = manifest_end("").size();
        if (text.size() < length ||
            text.substr(text.size() - length) != manifest_end(text.substr(0, text.size() - length))) {
            throw JsonError{text.size(),
                            "its own digest, at the end, is not that of its text: it was changed or cut"};
        }
        ManifestReader reader(text);
        return reader.manifest();
    }

  private:
    explicit ManifestReader(std::string_view text) : json_(text) {}

    std::uint32_t digest() {
        const std::string text = json_.string();
        std::uint32_t value = 0;
        const char* const end = std::from_chars(text.data(), text.data() + text.size(), value, 16).ptr;
        if (text.size() != 8 || end != text.data() + 8) { json_.fail("expected a digest of 8 digits"); }
        return value;
    }
    void file(Manifest::File& file) {
        json_.object([&](const std::string& key, std::size_t at) {
            if (key == "bytes") {
                file.bytes = json_.number();
            } else if (key == "header_crc32c") {
                file.header_crc32c = digest();
            } else if (key == "tensors_crc32c") {
                json_.object([&](const std::string& tensor, std::size_t) {
                    file.tensors.push_back({tensor, digest()});
                });
            } else {
                JsonReader::fail_at(at, "expected bytes, header_crc32c and tensors_crc32c");
            }
        });
    }
    Manifest manifest() {
        Manifest manifest;
        bool known = false;
        json_.object([&](const std::string& key, std::size_t at) {
            if (key == "format") {
                known = json_.string() == "shardkit checkpoint";
            } else if (key == "version") {
                const std::uint64_t version = json_.number();
                if (version != manifest_version) {
                    JsonReader::fail_at(at, "version ", version, ", expected ", manifest_version);
                }
            } else if (key == "step") {
                manifest.step = json_.number();
            } else if (key == "strings") {
                json_.object([&](const std::string& name, std::size_t) {
                    std::string value = json_.string();
                    manifest.strings.emplace_back(name, std::move(value));
                });
            } else if (key == "files") {
                json_.object([&](const std::string& name, std::size_t begin) {
                    if (!stays_inside(name)) { JsonReader::fail_at(begin, "a file outside of the folder"); }
                    manifest.files.push_back({name, 0, 0, {}});
                    file(manifest.files.back());
                });
            } else if (key == "crc32c") {
                json_.string();
            } else {
                JsonReader::fail_at(at, "a member that no manifest has");
            }
        });
        json_.end();
        if (!known) { json_.fail("expected the format 'shardkit checkpoint'"); }
        return manifest;
    }

    JsonReader json_;
};

}  // namespace shardkit::detail
