# SPDX-License-Identifier: Apache-2.0
"""check.py WAY ROOT -- COMPILER...: builds and runs the program in this folder, outside the tree, with shardkit
found in one way: meson (subproject), meson_compiled_nccl, pkg_config, pkg_config_compiled, cmake, cmake_compiled,
cmake_compiled_nccl, cmake_cuda, fetch_content, plain (-I), single_header, conan, conan_compiled, conan_compiled_nccl."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SOURCES = ("main.cpp", "other.cpp", "use.hpp")
# What a release holds that building against it needs; tests and examples are left out on purpose.
SHIPPED = ("include", "cmake", "meson.build", "meson_options.txt", "LICENSE")


SAVES = """#include <shardkit.hpp>
void save(shardkit::Rank& rank, const shardkit::checkpoint::State& state) {
    shardkit::checkpoint::save(rank, "run", 1, state);
}
"""


def run(*command, **options):
    command = [str(part) for part in command]
    print("+", shlex.join(command), flush=True)
    return subprocess.run(command, check=True, **options)


def copy_library(root, folder):
    folder.mkdir(parents=True)
    for name in SHIPPED:
        source = root / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return folder


def install(root, outside, environment, *options):
    """What README's commands install from a whole checkout, with Meson's `options`, and the environment that they leave."""
    checkout = outside / "checkout"
    shutil.copytree(root, checkout, ignore=shutil.ignore_patterns("build", ".*"))
    page = (root / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"^Installing.*?\n```sh\n(.*?)```", page, re.MULTILINE | re.DOTALL)[1]
    commands = commands.replace("meson setup build", shlex.join(["meson", "setup", "build", *options]))
    done = run("bash", "-ec", commands + "env -0", cwd=checkout, env=dict(environment, HOME=str(outside)),
               capture_output=True, text=True)
    compiled = [path for path in checkout.rglob("*") if path.suffix in (".o", ".a", ".so", ".gch")]
    if compiled and not options:
        sys.exit(f"meson install compiles {len(compiled)} files, {compiled[0].name} for one")
    entries = done.stdout[done.stdout.rindex("\n") + 1:].split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def meson(root, outside, _compiler, environment):
    copy_library(root, outside / "subprojects/shardkit")
    # Warnings as errors in the user's project must not meet a warning flag that only shardkit uses.
    run("meson", "setup", outside / "build", outside, "-Dwerror=true", "-Dwarning_level=1", env=environment)
    commands = run("ninja", "-C", outside / "build", "-t", "commands", capture_output=True, text=True).stdout
    if "-Wconversion" in commands:
        sys.exit("shardkit's own warning flags reach the user's targets")
    run("ninja", "-C", outside / "build")
    return outside / "build/consumer"


def pkg_config(root, outside, compiler, environment):
    return pkg_config_found(outside, compiler, install(root, outside, environment))


def pkg_config_found(outside, compiler, environment):
    found = run("pkg-config", "--print-errors", "--cflags", "--libs", "shardkit >= 0.1.0", capture_output=True,
                text=True, env=environment).stdout.split()
    run(*compiler, "-std=c++20", outside / "main.cpp", outside / "other.cpp", *found, "-o", outside / "consumer")
    return outside / "consumer"


def first_program(root, outside):
    """Writes README's first program to a file. @return what it prints"""
    page = (root / "README.md").read_text(encoding="utf-8")
    program, output = re.search(r"```cpp program\n(.*?)```\n```text output\n(.*?)```", page, re.DOTALL).groups()
    (outside / "first.cpp").write_text(program, encoding="utf-8")
    return output


def require_prints(program, output, **options):
    printed = run(*program, capture_output=True, text=True, **options).stdout
    if printed != output:
        sys.exit(f"the first program printed\n{printed}expected\n{output}")


def run_on_mpi(program, environment):
    run("mpirun.openmpi", "--oversubscribe", "-n", 2, program,
        env=dict(environment, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))


# What the programs here train in: the core of all precisions, which tests/compiled has, takes three times as long.
OF_FLOAT = "SHARDKIT_COMPILED_PRECISIONS=shardkit::Precisions<shardkit::DefaultPrecision<float>>"


def pkg_config_compiled(root, outside, compiler, environment):
    """README's first program over the core that Meson builds and installs; and over MPI where there is one."""
    environment = install(root, outside, dict(environment, CXXFLAGS=f"-D{OF_FLOAT}"), "-Dcompiled=true", "-Dbuildtype=plain")
    output = first_program(root, outside)

    def flags(module):
        return run("pkg-config", "--print-errors", "--cflags", "--libs", module, capture_output=True, text=True,
                   env=environment).stdout.split()
    run(*compiler, "-std=c++20", outside / "first.cpp", *flags("shardkit-compiled >= 0.1.0"), "-o", outside / "first")
    require_prints([outside / "first"], output)
    if shutil.which("mpirun.openmpi"):
        run(*compiler, "-std=c++20", root / "tests/compiled/on_mpi.cpp", *flags("shardkit-compiled-mpi"), "-o",
            outside / "on_mpi")
        run_on_mpi(outside / "on_mpi", environment)
    return pkg_config_found(outside, compiler, environment)


def cmake(root, outside, compiler, environment):
    """As installed, and moved afterwards: the installed files must not hold on to their first place."""
    environment = install(root, outside, environment)
    prefix = pathlib.Path(environment["CMAKE_PREFIX_PATH"])
    for moved in (prefix, outside / "moved-prefix"):
        build = outside / f"build-{moved.name}"
        if moved != prefix:
            prefix.rename(moved)
        run("cmake", "-S", outside, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler[-1]}",
            env=dict(environment, CMAKE_PREFIX_PATH=str(moved)))
        # Compiled once: the first place only has to be found.
        if moved != prefix:
            run("cmake", "--build", build, env=environment)
    return build / "consumer"


def cmake_compiled(root, outside, compiler, environment):
    """README's first program over the core that CMake builds for it, found where it was installed."""
    environment = install(root, outside, environment)
    output = first_program(root, outside)
    shutil.copytree(HERE / "cmake", outside, dirs_exist_ok=True)
    with open(outside / "CMakeLists.txt", "a", encoding="utf-8") as project:
        project.write("add_executable(first first.cpp)\ntarget_link_libraries(first PRIVATE shardkit::compiled)\n")
    build = outside / "build"
    run("cmake", "-S", outside, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler[-1]}", f"-D{OF_FLOAT}", env=environment)
    run("cmake", "--build", build, env=environment)
    require_prints([build / "first"], output)
    return build / "consumer"


def nvcc_for(environment):
    """The path of nvcc, and the environment for CMake. Device code is not optimised, which takes a third of the time."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("skipped: no nvcc")
        sys.exit(SKIPPED)
    return nvcc, dict(environment, CUDACXX=nvcc, NVCC_APPEND_FLAGS="-Ofc max")


def cmake_cuda(root, outside, compiler, environment):
    """A project of CXX and CUDA whose .cu links shardkit::shardkit, as installed and as a subdirectory, which gives
    nvcc the same words; compiled and linked, as it takes no GPU."""
    _, environment = nvcc_for(install(root, outside, environment))
    shutil.copy(HERE / "cuda/kernel.cu", outside)
    project = (HERE / "cuda/CMakeLists.txt").read_text(encoding="utf-8")
    library = copy_library(root, outside / "subdirectory")
    kernels = []
    for name, found in (("below", f"add_subdirectory({library}/cmake shardkit)"),
                        ("installed", "find_package(shardkit 0.1 REQUIRED)")):
        (outside / "CMakeLists.txt").write_text(project.replace("@FOUND@", found), encoding="utf-8")
        build = outside / f"build-{name}"
        run("cmake", "-S", outside, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler[-1]}",
            f"-DCMAKE_CUDA_HOST_COMPILER={compiler[-1]}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", env=environment)
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        command = next(each["command"] for each in commands if each["file"].endswith("kernel.cu"))
        reads = re.search(r"(?:-isystem[ =]?|-I)(\S*/include)\b", command)
        if not pathlib.Path(reads[1], "shardkit/shardkit.hpp").is_file():
            sys.exit(f"no shardkit/shardkit.hpp in {reads[1]}")
        kernels.append(command.replace(reads[0], "-Iinclude"))
    if kernels[0] != kernels[1]:
        sys.exit(f"kernel.cu is compiled in two ways:\n{kernels[0]}\n{kernels[1]}")
    run("cmake", "--build", build, env=environment)
    return build / "consumer"


def quick_start(root, outside):
    """Writes the CUDA quick start's trainer and kernels. @return its project of CMake's, and its precisions"""
    page = (root / "docs/cuda_quickstart.md").read_text(encoding="utf-8")

    def block(info):
        return re.search(rf"^```{info}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    (outside / "trainer.cpp").write_text(block("cpp gpu program"), encoding="utf-8")
    (outside / "kernels.cu").write_text(block("text"), encoding="utf-8")
    return block("cmake"), re.search(r"SHARDKIT_COMPILED_PRECISIONS=(.*)\"", page)[1]


def compile_kernels(outside, compiler, nvcc, environment):
    """As a code base compiles its own, whose trainer needs no nvcc."""
    run(nvcc, "-ccbin", compiler[-1], "-arch=sm_90", "-c", outside / "kernels.cu", "-o", outside / "kernels.o", env=environment)


def require_starts(trainer, nvcc):
    """It asks for GPUs or a launcher, and has the kernels of the whole core, those of states in 8 bits too."""
    libraries = pathlib.Path(nvcc).resolve().parent.parent / "lib64"
    started = subprocess.run([trainer], env={"LD_LIBRARY_PATH": str(libraries)}, capture_output=True, text=True, check=False)
    if not re.search(r"cudaGetDeviceCount at \S*trainer\.cpp:\d+: |Launcher: RANK is not set", started.stderr):
        sys.exit(f"the trainer ends with {started.returncode}, expected that it lacks GPUs or a launcher:\n{started.stderr}")
    names = run("nm", "-C", trainer, capture_output=True, text=True).stdout
    for kernel in ("Fill<float>", r"StoredRule<shardkit::rules::AdamWRule, \(shardkit::StateFormat\)2>"):
        if not re.search(rf"engine::DeviceLaunchOf<.*{kernel}.*::run\(", names):
            sys.exit(f"the trainer has no launch of a kernel with {kernel}")


def cmake_compiled_nccl(root, outside, compiler, environment):
    """The CUDA quick start's trainer, which g++ compiles, over the core that CMake builds for it with nvcc."""
    nvcc, environment = nvcc_for(install(root, outside, environment))
    project, precisions = quick_start(root, outside)
    (outside / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.18)
set(CMAKE_CUDA_ARCHITECTURES 90)
set(SHARDKIT_COMPILED_PRECISIONS "{precisions}")
{project}
add_executable(consumer main.cpp other.cpp)
target_link_libraries(consumer PRIVATE shardkit::shardkit)
""", encoding="utf-8")
    build = outside / "build"
    done = run("cmake", "-S", outside, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler[-1]}",
               f"-DCMAKE_CUDA_HOST_COMPILER={compiler[-1]}", env=environment, stdout=subprocess.PIPE, text=True)
    if "SHARDKIT_NCCL_LIBRARY:FILEPATH=SHARDKIT_NCCL_LIBRARY-NOTFOUND" in (build / "CMakeCache.txt").read_text("utf-8"):
        print("skipped: CMake finds no NCCL\n", done.stdout)
        sys.exit(SKIPPED)
    run("cmake", "--build", build, env=environment)
    require_starts(build / "trainer", nvcc)
    return build / "consumer"


def meson_compiled_nccl(root, outside, compiler, environment):
    """The same trainer over the core that Meson builds, as a subproject, and by pkg-config from what that installs."""
    nvcc, environment = nvcc_for(environment)
    _, precisions = quick_start(root, outside)
    copy_library(root, outside / "subprojects/shardkit")
    compile_kernels(outside, compiler, nvcc, environment)
    (outside / "meson.build").write_text(
        """project('trainer', 'cpp', default_options: ['cpp_std=c++20'])
shardkit_dep = dependency('shardkit_compiled_nccl', fallback: 'shardkit',
  default_options: ['compiled=true', 'nccl=true', 'gpu_architectures=90'])
executable('trainer', 'trainer.cpp', objects: 'kernels.o', dependencies: shardkit_dep)
executable('consumer', 'main.cpp', 'other.cpp', dependencies: dependency('shardkit'))
""", encoding="utf-8")
    build, prefix = outside / "build", outside / "prefix"
    run("meson", "setup", build, outside, "--prefix", prefix, "-Dbuildtype=plain", "-Dlibdir=lib",
        env=dict(environment, CXXFLAGS=f"-DSHARDKIT_COMPILED_PRECISIONS={precisions}"))
    run("meson", "install", "-C", build, env=environment)
    require_starts(build / "trainer", nvcc)
    found = run("pkg-config", "--print-errors", "--cflags", "--libs", "shardkit-compiled-nccl", capture_output=True, text=True,
                env=dict(environment, PKG_CONFIG_PATH=str(prefix / "share/pkgconfig"))).stdout.split()
    run(*compiler, "-std=c++20", outside / "trainer.cpp", outside / "kernels.o", *found, "-o", outside / "trainer")
    require_starts(outside / "trainer", nvcc)
    return build / "consumer"


def fetch_content(root, outside, compiler, environment):
    """FetchContent, as docs/versions.md has it, from a folder in place of an address."""
    page = (root / "docs/versions.md").read_text(encoding="utf-8")
    text = re.search(r"```cmake\n(.*?)```", page, re.DOTALL)[1].replace("trainer", "consumer")
    source = copy_library(root, outside / "fetched")
    text, count = re.subn(r"GIT_REPOSITORY \S+ GIT_TAG \S+", f"SOURCE_DIR {source}", text)
    if count != 1:
        sys.exit("docs/versions.md: no FetchContent_Declare with GIT_REPOSITORY and GIT_TAG")
    project = (HERE / "cmake/CMakeLists.txt").read_text(encoding="utf-8")
    project = re.sub(r"(find_package|target_link_libraries).*\n", "", project) + text
    (outside / "CMakeLists.txt").write_text(project, encoding="utf-8")
    build = outside / "build-fetched"
    run("cmake", "-S", outside, "-B", build, f"-DCMAKE_CXX_COMPILER={compiler[-1]}", env=environment)
    run("cmake", "--build", build, env=environment)
    return build / "consumer"


def plain(root, outside, compiler, _environment):
    include = copy_library(root, outside / "shardkit") / "include"
    run(*compiler, "-std=c++20", "-I", include, outside / "main.cpp", outside / "other.cpp", "-pthread", "-o",
        outside / "consumer")
    if "g++" in compiler[-1] and "clang" not in compiler[-1]:
        run(*compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Wuseless-cast", "-Wcast-align=strict",
            "-Wmissing-declarations", "-Werror", "-I", include, "-c", HERE / "saving.cpp", "-o", outside / "saving.o")
    return outside / "consumer"


def single_header(root, outside, compiler, _environment):
    """One file, written from a checkout, and the checkout is gone."""
    file = outside / "one/shardkit/shardkit.hpp"
    run(sys.executable, "-B", root / "scripts/single_header.py", "--out", file)
    left = re.findall(r"^\s*#\s*include\s*<shardkit/.*", file.read_text(encoding="utf-8"), re.MULTILINE)
    if left:
        sys.exit(f"the single header includes {left[0]}")
    run(*compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", outside / "one", outside / "main.cpp",
        outside / "other.cpp", "-pthread", "-o", outside / "consumer")
    # Together with a header of the tree, in either order, it says what to do; and that is enough.
    both = ("shardkit/shardkit.hpp", "shardkit/checkpoint.hpp")
    (outside / "tree").symlink_to((root / "include").resolve())
    for headers in (("one/shardkit/shardkit.hpp", "tree/shardkit/checkpoint.hpp"),
                    ("tree/shardkit/checkpoint.hpp", "one/shardkit/shardkit.hpp")):
        (outside / "mixed.cpp").write_text("".join(f'#include "{header}"\n' for header in headers), encoding="utf-8")
        done = subprocess.run([*map(str, compiler), "-std=c++20", "-fsyntax-only", "-I", str((root / "include").resolve()),
                               str(outside / "mixed.cpp")], capture_output=True, text=True, check=False)
        if done.returncode == 0 or f"single_header.py {' '.join(both)}" not in done.stderr:
            sys.exit(f"{headers} says\n{done.stderr[:2000]}")
    run(sys.executable, "-B", root / "scripts/single_header.py", "--out", outside / "two/shardkit.hpp", *both)
    (outside / "saves.cpp").write_text(SAVES, encoding="utf-8")
    run(*compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", outside / "two", outside / "saves.cpp")
    return outside / "consumer"


def find_conan(outside):
    """Conan from PATH, else from PyPI; the recipe itself needs no network."""
    found = shutil.which("conan")
    if found:
        return found, {}
    target = outside / "conan-packages"
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
                           str(target), "conan"], capture_output=True, text=True)
    if done.returncode != 0:
        print("skipped: no conan in PATH, and PyPI gives none")
        sys.exit(SKIPPED)
    return target / "bin/conan", {"PYTHONPATH": str(target)}


def conan_with(root, outside, environment, *options, define=None):
    """Creates the package with the recipe's `options`, and with a variable of CMake's. @return what runs Conan with the options,
    and its environment"""
    recipe = copy_library(root, outside / "recipe")
    shutil.copy(root / "conanfile.py", recipe)
    program, more = find_conan(outside)
    environment = dict(environment, CONAN_HOME=str(outside / "conan-home"), **more)
    environment.pop("CXX")  # what a compiler cache's name would be taken for
    run(program, "profile", "detect", env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    standard = ("-s", "compiler.cppstd=20", "--no-remote", *options)
    name, _, value = (define or "").partition("=")
    defined = ("-c", "tools.cmake.cmaketoolchain:extra_variables=" + json.dumps({name: value})) if define else ()
    run(program, "create", recipe, *standard, *defined, env=environment)
    return program, environment, standard, recipe


def build_with_conan(root, outside, compiler, program, environment, standard, build_type="Release"):
    version = re.search(r"\bversion: '([^']+)'", (root / "meson.build").read_text(encoding="utf-8"))[1]
    run(program, "install", "--requires", f"shardkit/{version}", "-g", "CMakeDeps", "-g", "CMakeToolchain", "-of",
        outside / "found", *standard, env=environment)
    run("cmake", "-S", outside, "-B", outside / "build", f"-DCMAKE_CXX_COMPILER={compiler[-1]}",
        f"-DCMAKE_TOOLCHAIN_FILE={outside / 'found/conan_toolchain.cmake'}", f"-DCMAKE_BUILD_TYPE={build_type}",
        env=environment)
    run("cmake", "--build", outside / "build", env=environment)
    return outside / "build/consumer"


def conan(root, outside, compiler, environment):
    program, environment, standard, recipe = conan_with(root, outside, environment)
    # An older standard is refused by the recipe, not by thousands of errors.
    refused = subprocess.run([str(program), "create", str(recipe), "-s", "compiler.cppstd=17", "--no-remote"],
                             env=environment, capture_output=True, text=True)
    if refused.returncode == 0 or "Current cppstd (17) is lower than the required C++ standard (20)" not in refused.stderr:
        sys.exit(f"the recipe takes C++17\n{refused.stdout}{refused.stderr}")
    shutil.rmtree(recipe)
    shutil.copytree(HERE / "cmake", outside, dirs_exist_ok=True)
    return build_with_conan(root, outside, compiler, program, environment, standard)


def conan_compiled(root, outside, compiler, environment):
    """README's first program over the core that the recipe builds, and the header-only target beside it. Unoptimised, the
    core compiles in a third of the time."""
    mpi = shutil.which("mpirun.openmpi")
    on_mpi = (root / "tests/compiled/on_mpi.cpp").resolve()
    program, environment, standard, recipe = conan_with(
        root, outside, environment, "-o", "shardkit/*:compiled=True", "-o", f"shardkit/*:mpi={bool(mpi)}", "-s",
        "build_type=Debug", define=OF_FLOAT)
    shutil.rmtree(recipe)
    output = first_program(root, outside)
    shutil.copytree(HERE / "cmake", outside, dirs_exist_ok=True)
    with open(outside / "CMakeLists.txt", "a", encoding="utf-8") as project:
        project.write("add_executable(first first.cpp)\ntarget_link_libraries(first PRIVATE shardkit::compiled)\n")
        if mpi:
            project.write(f"find_package(MPI REQUIRED)\nadd_executable(on_mpi {on_mpi})\n"
                          "target_link_libraries(on_mpi PRIVATE shardkit::compiled_mpi MPI::MPI_CXX)\n")
    consumer = build_with_conan(root, outside, compiler, program, environment, standard, "Debug")
    require_prints([outside / "build/first"], output)
    if mpi:
        run_on_mpi(outside / "build/on_mpi", environment)
    return consumer


def conan_compiled_nccl(root, outside, compiler, environment):
    """The CUDA quick start's trainer over the core that the recipe builds with nvcc."""
    nvcc, environment = nvcc_for(environment)
    _, precisions = quick_start(root, outside)
    compile_kernels(outside, compiler, nvcc, environment)
    program, environment, standard, recipe = conan_with(
        root, outside, environment, "-o", "shardkit/*:compiled=True", "-o", "shardkit/*:nccl=True", "-o",
        "shardkit/*:gpu_architectures=90", "-s", "build_type=Debug", define=f"SHARDKIT_COMPILED_PRECISIONS={precisions}")
    shutil.rmtree(recipe)
    (outside / "CMakeLists.txt").write_text(
        """cmake_minimum_required(VERSION 3.18)
project(trainer CXX)
find_package(shardkit REQUIRED)
find_package(CUDAToolkit REQUIRED)
add_executable(trainer trainer.cpp kernels.o)
target_link_libraries(trainer PRIVATE shardkit::compiled_nccl)
target_link_directories(trainer PRIVATE "${CUDAToolkit_LIBRARY_DIR}")
add_executable(consumer main.cpp other.cpp)
target_link_libraries(consumer PRIVATE shardkit::shardkit)
""", encoding="utf-8")
    consumer = build_with_conan(root, outside, compiler, program, environment, standard, "Debug")
    require_starts(outside / "build/trainer", nvcc)
    return consumer


def main():
    way, root, compiler = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[4:]
    ways = {each.__name__: each for each in (
        meson, meson_compiled_nccl, pkg_config, pkg_config_compiled, cmake, cmake_compiled, cmake_compiled_nccl, cmake_cuda,
        fetch_content, plain, single_header, conan, conan_compiled, conan_compiled_nccl)}
    # Meson has ninja; a machine need not have make.
    environment = dict(os.environ, CXX=shlex.join(compiler), CMAKE_GENERATOR="Ninja")
    with tempfile.TemporaryDirectory(prefix="shardkit-consume-") as folder:
        outside = pathlib.Path(folder)
        for name in SOURCES:
            shutil.copy(HERE / name, outside / name)
        if (HERE / way).is_dir():
            shutil.copytree(HERE / way, outside, dirs_exist_ok=True)
        try:
            program = ways[way](root, outside, compiler, environment)
            printed = run(program, capture_output=True, text=True).stdout
        except subprocess.CalledProcessError as error:
            sys.exit(f"{error}\n{error.stdout or ''}{error.stderr or ''}")
        if printed != "consumed\n":
            sys.exit(f"expected the program to print 'consumed', it printed '{printed}'")


if __name__ == "__main__":
    main()
