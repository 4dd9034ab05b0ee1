// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/read_header.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit::safetensors {

/// A safetensors file, open for reading: its tensors by name, with any types and shapes. It is local: no ranks take
/// part, and several threads may read at the same time. The whole header is checked against the rules of the format
/// when the file is opened, so that an untrusted file cannot cause a read outside of it.
class File {
  public:
    /// Reads and checks the header, but no tensor. Memory: a small multiple of the header, which has at most 100 MB.
    /// @throws FileError that names the file and the error
    explicit File(std::string path, SourceLocation where = SourceLocation::current())
        : file_(shardkit::detail::OpenFile::to_read(shardkit::detail::posix_files(), std::move(path), where)),
          header_(shardkit::detail::read_header(file_, nullptr, where)),
          by_name_(header_.tensors.size()) {
        std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
        std::sort(by_name_.begin(), by_name_.end(),
                  [&](std::size_t a, std::size_t b) { return header_.tensors[a].name < header_.tensors[b].name; });
    }

    const std::string& path() const noexcept { return file_.path(); }
    /// Returns the tensors in the order of their bytes.
    std::span<const Tensor> tensors() const& noexcept { return header_.tensors; }
    void tensors() && = delete;  ///< a temporary file: its tensors would dangle
    /// Returns the file's own texts, sorted by key.
    std::span<const std::pair<std::string, std::string>> metadata() const& noexcept { return header_.metadata; }
    void metadata() && = delete;

    /// Returns the tensor with that name, null if there is none. Cost: logarithmic in the number of tensors.
    const Tensor* find(std::string_view name) const noexcept {
        const auto at = std::lower_bound(
            by_name_.begin(), by_name_.end(), name,
            [&](std::size_t number, std::string_view wanted) { return header_.tensors[number].name < wanted; });
        return at == by_name_.end() || header_.tensors[*at].name != name ? nullptr : &header_.tensors[*at];
    }
    /// Returns the tensor with that name. @throws std::invalid_argument if there is none
    const Tensor& at(std::string_view name, SourceLocation where = SourceLocation::current()) const {
        const Tensor* const tensor = find(name);
        if (tensor == nullptr) {
            throw_invalid_argument(where, "'", path(), "' has no tensor '", name, "' among its ", tensors().size());
        }
        return *tensor;
    }

    /// Reads elements [first, first + values.size()) of a tensor of type F64, F32, BF16 or F16, in row-major order,
    /// into host memory. Widening is exact. Narrowing rounds to nearest, ties to even; F64 to 16 bits goes through
    /// float. Cost: reads the elements' bytes once, through a buffer of 64 KiB.
    /// @throws std::invalid_argument for an unknown name, or an invalid range or element type; FileError when reading
    /// fails
    template <FloatingElement T>
    void read(std::string_view name, std::span<T> values, std::size_t first = 0,
              SourceLocation where = SourceLocation::current()) const {
        read_range(at(name, where), values, first, where);
    }
    /// Reads all of a tensor that must have this shape; a transposed one would have as many elements.
    /// @throws std::invalid_argument with both shapes, and as the first read
    template <FloatingElement T>
    std::vector<T> read(std::string_view name, const TensorShape& expected,
                        SourceLocation where = SourceLocation::current()) const {
        const Tensor& tensor = at(name, where);
        if (!(tensor.shape == expected)) {
            throw_invalid_argument(where, "'", path(), "' tensor '", name, "' has shape ", tensor.shape.describe(),
                                   ", expected ", expected.describe());
        }
        return read_whole<T>(tensor, where);
    }
    /// Reads all of a tensor.
    template <FloatingElement T>
    std::vector<T> read(std::string_view name, SourceLocation where = SourceLocation::current()) const {
        return read_whole<T>(at(name, where), where);
    }

  private:
    template <class T>
    std::vector<T> read_whole(const Tensor& tensor, SourceLocation where) const {
        std::vector<T> values(tensor.numel());
        read_range(tensor, std::span(values), 0, where);
        return values;
    }
    template <class T>
    void read_range(const Tensor& tensor, std::span<T> values, std::size_t first, SourceLocation where) const {
        if (first > tensor.numel() || values.size() > tensor.numel() - first) {
            throw_invalid_argument(where, "'", path(), "' tensor '", tensor.name, "' ", tensor.shape.describe(),
                                   ": read of elements ", first, " to ", first, " + ", values.size(), ", it has ",
                                   tensor.numel());
        }
        if (!shardkit::detail::is_read(tensor.type, element_type_of<T>)) {
            throw_invalid_argument(where, "'", path(), "' tensor '", tensor.name, "': elements of type ",
                                   name(tensor.type), ", expected ",
                                   shardkit::detail::expected_types(element_type_of<T>));
        }
        const std::size_t stored = bits_of(tensor.type) / 8;
        const std::size_t begin = header_.data_begin + tensor.bytes.begin + first * stored;
        const std::span<std::byte> to = std::as_writable_bytes(values);
        if (shardkit::detail::same_elements(tensor.type, element_type_of<T>)) {
            file_.read(begin, to, where);
            return;
        }
        const shardkit::detail::ElementConverter convert(tensor.type, element_type_of<T>);
        std::vector<std::byte> buffer(std::min<std::size_t>(65536, values.size() * stored));
        for (std::size_t done = 0; done < values.size();) {
            const std::size_t now = std::min(buffer.size() / stored, values.size() - done);
            file_.read(begin + done * stored, std::span(buffer).first(now * stored), where);
            if (convert(buffer.data(), to.data() + done * sizeof(T), now) < now) {
                throw FileError(path(), shardkit::detail::out_of_range(tensor.name, element_type_of<T>), where);
            }
            done += now;
        }
    }

    shardkit::detail::OpenFile file_;
    Header header_;
    std::vector<std::size_t> by_name_;  // indices of tensors
};

}  // namespace shardkit::safetensors
