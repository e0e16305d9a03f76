# What `cmake --install` makes: a tree that can be moved, and taken to a machine without our build dependencies.
#
#   bin/                programs; in builds with CUDA launchers that look for the CUDA libraries (apps/packaging/launcher.sh.in)
#   libexec/abtrain/    what the launchers start
#   lib/                the library for find_package(abtrain)
#   lib/abtrain/        the shared libraries that all of these need
#   share/              the manual page, completions for bash, zsh and fish
#   share/abtrain/      configurations, bench/gpu_check.sh, licences of all that comes along
#
# The target `package` makes an archive of it, abtrain.tar.xz in the build folder, which unpacks to a folder abtrain.

set(AB_INSTALL_PRIVATE_LIBDIR ${CMAKE_INSTALL_LIBDIR}/abtrain)
set(AB_INSTALL_DATADIR ${CMAKE_INSTALL_DATADIR}/abtrain)

# Lets what is installed in `folder` find our libraries, wherever the tree is moved. RPATH and not RUNPATH, because it
# also serves the libraries that these libraries need, and precedes LD_LIBRARY_PATH.
function(ab_set_install_rpath target folder)
  foreach(libdir ${CMAKE_INSTALL_LIBDIR} ${AB_INSTALL_PRIVATE_LIBDIR})
    file(RELATIVE_PATH path /prefix/${folder} /prefix/${libdir})
    list(APPEND rpath "$ORIGIN/${path}")
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# Writes a launcher of `name`, which is in the folder `programs`, relative to the launcher.
function(ab_configure_launcher name programs file)
  configure_file(${PROJECT_SOURCE_DIR}/apps/packaging/launcher.sh.in ${file} @ONLY)
endfunction()

# Installs programs, so that they are started in bin/.
function(ab_install_programs)
  set(folder ${CMAKE_INSTALL_BINDIR})
  if(AB_HAS_CUDA)
    set(folder ${CMAKE_INSTALL_LIBEXECDIR}/abtrain)
    file(RELATIVE_PATH programs /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${folder})
  endif()
  foreach(target ${ARGN})
    ab_set_install_rpath(${target} ${folder})
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET ab_libraries RUNTIME DESTINATION ${folder})
    if(AB_HAS_CUDA)
      get_target_property(name ${target} OUTPUT_NAME)
      if(NOT name)
        set(name ${target})
      endif()
      ab_configure_launcher(${name} ${programs} ${PROJECT_BINARY_DIR}/launchers/${name})
      install(PROGRAMS ${PROJECT_BINARY_DIR}/launchers/${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
endfunction()

# What the program of the build writes about itself. One for another processor cannot be started here.
function(ab_install_help target)
  foreach(words "man;${CMAKE_INSTALL_MANDIR}/man1;abtrain.1"
                "completion=bash;${CMAKE_INSTALL_DATADIR}/bash-completion/completions;abtrain"
                "completion=zsh;${CMAKE_INSTALL_DATADIR}/zsh/site-functions;_abtrain"
                "completion=fish;${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d;abtrain.fish")
    list(POP_FRONT words flag folder name)
    set(file ${PROJECT_BINARY_DIR}/help/${name})
    install(CODE "
      file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/help\")
      execute_process(COMMAND \"$<TARGET_FILE:${target}>\" --${flag} OUTPUT_FILE \"${file}\" RESULT_VARIABLE result ERROR_QUIET)
      if(result EQUAL 0)
        file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\" TYPE FILE FILES \"${file}\")
      else()
        message(STATUS \"The program cannot be started here: the installed tree goes without ${folder}/${name}\")
      endif()")
  endforeach()
endfunction()

# The shared libraries of everything installed, without those that belong to the machine: the C library, which fits the
# loader; CUDA, which fits the driver and is too large to carry; MPI, which fits mpirun. libstdc++ and libgcc_s come
# along: an older system's lack symbols that we need, while ours have all that older libraries need.
function(ab_install_needed_libraries)
  install(RUNTIME_DEPENDENCY_SET ab_libraries
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so"
                        "^lib(cuda|cublas|cudnn|cusolver|cusparse|nvJitLink|nccl)"
                        "^lib(mpi|mpich|open-rte|open-pal)"
    POST_EXCLUDE_REGEXES "/libabtrain(_train)?\\.so"
    LIBRARY DESTINATION ${AB_INSTALL_PRIVATE_LIBDIR})
endfunction()

# The licences of our libraries, in programs or beside them, as Debian and its kin keep them: one file for each package.
function(ab_install_licenses)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${AB_INSTALL_DATADIR}/licenses RENAME abtrain)
  set(packages libstdc++6 libopenblas-openmp-dev libfmt-dev libxxhash-dev libjpeg62-turbo-dev libstb-dev
      nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libgtest-dev libbenchmark-dev)
  if(AB_WITH_ONEDNN)
    list(APPEND packages libdnnl-dev ocl-icd-libopencl1)
  endif()
  foreach(package ${packages})
    get_filename_component(copyright /usr/share/doc/${package}/copyright REALPATH)
    if(EXISTS ${copyright})
      install(FILES ${copyright} DESTINATION ${AB_INSTALL_DATADIR}/licenses RENAME ${package})
    else()
      message(STATUS "The licence of ${package} is not where Debian has it: an installed tree goes without")
    endif()
  endforeach()
endfunction()

# The target `package`, of everything that is installed.
macro(ab_package)
  set(CPACK_GENERATOR TXZ)
  set(CPACK_PACKAGE_NAME abtrain)
  set(CPACK_PACKAGE_FILE_NAME abtrain)
  set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  include(CPack)
endmacro()
