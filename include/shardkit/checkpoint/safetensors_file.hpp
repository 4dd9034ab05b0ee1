// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

namespace detail {

/// A regular file, open for reading.
class ReadableFile {
  public:
    ReadableFile(std::string path, SourceLocation where) : path_(std::move(path)) {
        // What is no regular file may make the call wait for a writer.
        descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor_ < 0) { throw FileError(path_, concat("cannot be opened: ", std::strerror(errno)), where); }
        struct stat status {};
        if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
            ::close(descriptor_);
            throw FileError(path_, S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file", where);
        }
        size_ = static_cast<std::size_t>(status.st_size);
    }
    ~ReadableFile() {
        if (descriptor_ >= 0) { ::close(descriptor_); }
    }
    ReadableFile(ReadableFile&& other) noexcept
        : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
    ReadableFile& operator=(ReadableFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(descriptor_, other.descriptor_);
        std::swap(size_, other.size_);
        return *this;
    }

    const std::string& path() const noexcept { return path_; }
    std::size_t size() const noexcept { return size_; }

    /// All of `bytes`, from `offset` of the file on.
    void read(std::size_t offset, std::span<std::byte> bytes, SourceLocation where) const {
        while (!bytes.empty()) {
            const auto count = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
            if (count < 0 && errno == EINTR) { continue; }
            if (count < 0) {
                throw FileError(path_, concat("reading at byte ", offset, ": ", std::strerror(errno)), where);
            }
            if (count == 0) {
                throw FileError(
                    path_, concat("ends at byte ", offset, ", but had ", size_, " bytes when it was opened"), where);
            }
            offset += static_cast<std::size_t>(count);
            bytes = bytes.subspan(static_cast<std::size_t>(count));
        }
    }

  private:
    std::string path_;
    int descriptor_ = -1;
    std::size_t size_ = 0;
};

}  // namespace detail

/// A safetensors file, open for reading: its tensors by name, with whatever types and shapes it has. Local, no rank
/// takes part; different threads may read at the same time. Every rule of the format is held against the file when it
/// is opened, so that no byte of a stranger's file makes a call read outside of it.
class SafetensorsFile {
  public:
    /// Reads and checks the header; no tensor. Memory: a small multiple of the header's bytes, at most 100 MB of
    /// them.
    /// @throws FileError that says the file and what is wrong with it
    explicit SafetensorsFile(std::string path, SourceLocation where = SourceLocation::current())
        : file_(std::move(path), where), header_(read_header(file_, where)) {}

    const std::string& path() const noexcept { return file_.path(); }
    /// In the order of their bytes.
    std::span<const safetensors::Tensor> tensors() const& noexcept { return header_.tensors; }
    void tensors() && = delete;  ///< a file that ends with the expression: its tensors would dangle
    /// The file's own texts, sorted by key.
    std::span<const std::pair<std::string, std::string>> metadata() const& noexcept { return header_.metadata; }
    void metadata() && = delete;

    /// The tensor of that name; null when there is none.
    const safetensors::Tensor* find(std::string_view name) const noexcept {
        const auto at = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                     [&](const safetensors::Tensor& tensor) { return tensor.name == name; });
        return at == header_.tensors.end() ? nullptr : &*at;
    }
    /// @throws std::invalid_argument when there is none
    const safetensors::Tensor& at(std::string_view name, SourceLocation where = SourceLocation::current()) const {
        const safetensors::Tensor* const tensor = find(name);
        if (tensor == nullptr) {
            throw_invalid_argument(where, "'", path(), "' has no tensor '", name, "' among its ", tensors().size());
        }
        return *tensor;
    }

    /// Elements [first, first + values.size()) of a tensor of type F64, F32, BF16 or F16, in row-major order, into
    /// the host's memory. Widening is exact; F64 and F32 become 16-bit elements, and F64 becomes float, rounded to
    /// the nearest, ties to even, F64 by way of float. Cost: the elements' bytes are read once, through a buffer of
    /// 64 KiB.
    /// @throws std::invalid_argument for another name, range or element type; FileError when the file cannot be read
    template <FloatingElement T>
    void read(std::string_view name, std::span<T> values, std::size_t first = 0,
              SourceLocation where = SourceLocation::current()) const {
        read_range(at(name, where), values, first, where);
    }
    /// All of a tensor that must have this shape: what is transposed has as many elements.
    /// @throws std::invalid_argument with both shapes, and as above
    template <FloatingElement T>
    std::vector<T> read(std::string_view name, const TensorShape& expected,
                        SourceLocation where = SourceLocation::current()) const {
        const safetensors::Tensor& tensor = at(name, where);
        if (!(tensor.shape == expected)) {
            throw_invalid_argument(where, "'", path(), "' tensor '", name, "' has shape ", tensor.shape.describe(),
                                   ", expected ", expected.describe());
        }
        return read_whole<T>(tensor, where);
    }
    /// All of a tensor.
    template <FloatingElement T>
    std::vector<T> read(std::string_view name, SourceLocation where = SourceLocation::current()) const {
        return read_whole<T>(at(name, where), where);
    }

  private:
    static safetensors::Header read_header(const detail::ReadableFile& file, SourceLocation where) {
        static_assert(std::endian::native == std::endian::little,
                      "the format is little-endian, as are its readers here");
        const auto refuse = [&](std::string_view what) { throw FileError(file.path(), what, where); };
        std::uint64_t length = 0;
        if (file.size() < sizeof length) {
            refuse(detail::concat("no safetensors file: ", file.size(), " bytes, expected at least 8"));
        }
        file.read(0, std::as_writable_bytes(std::span(&length, 1)), where);
        const std::size_t behind = file.size() - sizeof length;
        if (length > safetensors::max_header_bytes || length > behind) {
            refuse(detail::concat("no safetensors file: a header of ", length, " bytes, expected at most ",
                                  std::min<std::uint64_t>(behind, safetensors::max_header_bytes)));
        }
        std::string text(static_cast<std::size_t>(length), '\0');
        file.read(sizeof length, std::as_writable_bytes(std::span(text)), where);
        try {
            safetensors::Header header = safetensors::detail::parse_header(text, behind - text.size());
            header.data_begin = sizeof length + text.size();
            return header;
        } catch (const detail::JsonError& error) {
            throw FileError(
                file.path(),
                detail::concat("not a valid safetensors file: byte ", error.at, " of its header: ", error.what),
                where);
        }
    }

    template <class T>
    std::vector<T> read_whole(const safetensors::Tensor& tensor, SourceLocation where) const {
        std::vector<T> values(tensor.numel());
        read_range(tensor, std::span(values), 0, where);
        return values;
    }
    template <class T>
    void read_range(const safetensors::Tensor& tensor, std::span<T> values, std::size_t first,
                    SourceLocation where) const {
        if (first > tensor.numel() || values.size() > tensor.numel() - first) {
            throw_invalid_argument(where, "'", path(), "' tensor '", tensor.name, "' ", tensor.shape.describe(),
                                   ": read of elements ", first, " to ", first, " + ", values.size(), ", it has ",
                                   tensor.numel());
        }
        switch (tensor.type) {
            case safetensors::DType::f64:
                return read_as<double>(tensor, values, first, where);
            case safetensors::DType::f32:
                return read_as<float>(tensor, values, first, where);
            case safetensors::DType::bf16:
                return read_as<bf16>(tensor, values, first, where);
            case safetensors::DType::f16:
                return read_as<fp16>(tensor, values, first, where);
            default:
                throw_invalid_argument(where, "'", path(), "' tensor '", tensor.name, "': elements of type ",
                                       safetensors::name(tensor.type), ", expected F64, F32, BF16 or F16");
        }
    }
    template <class Stored, class T>
    void read_as(const safetensors::Tensor& tensor, std::span<T> values, std::size_t first,
                 SourceLocation where) const {
        const std::size_t begin = header_.data_begin + tensor.bytes.begin;
        if constexpr (std::is_same_v<Stored, T>) {
            file_.read(begin + first * sizeof(T), std::as_writable_bytes(values), where);
        } else {
            constexpr std::size_t count = 65536 / sizeof(Stored);
            const std::size_t most = std::min(count, values.size());
            const auto buffer = std::make_unique<Stored[]>(most);  // NOLINT(modernize-avoid-c-arrays)
            for (std::size_t done = 0; done < values.size(); done += most) {
                const std::size_t now = std::min(most, values.size() - done);
                file_.read(begin + (first + done) * sizeof(Stored),
                           std::as_writable_bytes(std::span(buffer.get(), now)), where);
                for (std::size_t i = 0; i < now; ++i) {
                    values[done + i] =
                        static_cast<T>(static_cast<Arithmetic<T>>(static_cast<Arithmetic<Stored>>(buffer[i])));
                }
            }
        }
    }

    detail::ReadableFile file_;
    safetensors::Header header_;
};

}  // namespace shardkit
